/* The search for the best class of every pixel, cell by cell. See joem/decision/compiled.py for who calls it.

A cell is the rectangle between four neighbouring features; what is interpolated inside it lies between the values at
its corners. A class that is worse at its best corner than another is at its worst corner wins nowhere in the cell, so
only the others are interpolated. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define MOST 256  /* pixels of a cell that are worked on together */
#define LANES 16
#define MIN(a, b) ((a) < (b) ? (a) : (b)) /* unlike fminf, one instruction: there are no NaNs here */
#define MAX(a, b) ((a) > (b) ? (a) : (b))

typedef struct {
    const float *step;    /* how far each output position is from the feature before it, from 0 to 1 */
    const int64_t *low;   /* that feature */
} Axis;

typedef struct {
    float *first;    /* the best score of every pixel */
    float *second;   /* the second best; NULL where it is not wanted */
    int64_t *label;  /* of the best */
} Best;

/* The classes from `from` up to `to` that can be the best, or the second best if `two`, somewhere in the cell. */
static int candidates(const float *const corner[4], int from, int to, int two, float *restrict highest,
                      int32_t *restrict found) {
    const float *restrict a = corner[0], *restrict b = corner[1], *restrict c = corner[2], *restrict d = corner[3];
    float best[LANES], next[LANES]; /* the two largest of what classes have at their worst corner, lane by lane */
    for (int lane = 0; lane < LANES; lane++) best[lane] = next[lane] = -INFINITY;
    int k = from;
    for (; k + LANES <= to; k += LANES)
        for (int lane = 0; lane < LANES; lane++) {
            int i = k + lane;
            float low = MIN(MIN(a[i], b[i]), MIN(c[i], d[i]));
            highest[i] = MAX(MAX(a[i], b[i]), MAX(c[i], d[i]));
            next[lane] = MAX(next[lane], MIN(low, best[lane]));
            best[lane] = MAX(best[lane], low);
        }
    for (int lane = 0; k < to; k++, lane++) {
        float low = MIN(MIN(a[k], b[k]), MIN(c[k], d[k]));
        highest[k] = MAX(MAX(a[k], b[k]), MAX(c[k], d[k]));
        next[lane] = MAX(next[lane], MIN(low, best[lane]));
        best[lane] = MAX(best[lane], low);
    }
    float first = -INFINITY, second = -INFINITY;
    for (int lane = 0; lane < LANES; lane++) {
        second = MAX(second, MAX(next[lane], MIN(first, best[lane])));
        first = MAX(first, best[lane]);
    }
    float bound = two ? second : first;
    int count = 0;
    for (k = from; k < to; k++) {
        found[count] = k;
        count += highest[k] >= bound;
    }
    return count;
}

/* Rows `top` to `bottom` of the output, one side: the classes from `from` up to `to` of a table (features, classes). */
static void side(const float *table, int64_t wide, int classes, int from, int to, const int64_t *labels, Axis vertical,
                 Axis horizontal, int64_t top, int64_t bottom, int64_t width, Best best, float *highest, int32_t *found) {
    float u[MOST], t[MOST], ut[MOST], value[MOST], second[MOST];
    int32_t place[MOST];
    for (int64_t y = top; y < bottom;) {
        int64_t end_y = y + 1;
        while (end_y < bottom && vertical.low[end_y] == vertical.low[y]) end_y++;
        for (int64_t x = 0; x < width;) {
            int64_t end_x = x + 1;
            while (end_x < width && end_x - x < MOST && horizontal.low[end_x] == horizontal.low[x]) end_x++;
            const float *origin = table + (vertical.low[y] * wide + horizontal.low[x]) * classes;
            const float *const corner[4] = {origin, origin + classes, origin + wide * classes,
                                            origin + (wide + 1) * classes};
            int count = candidates(corner, from, to, best.second != NULL, highest, found);
            int columns = (int)(end_x - x);
            for (int64_t start = y; start < end_y;) {
                int rows = (int)(end_y - start) < MOST / columns ? (int)(end_y - start) : MOST / columns;
                int pixels = rows * columns;
                for (int row = 0, p = 0; row < rows; row++)
                    for (int column = 0; column < columns; column++, p++) {
                        u[p] = horizontal.step[x + column];
                        t[p] = vertical.step[start + row];
                        ut[p] = u[p] * t[p];
                        value[p] = second[p] = -INFINITY;
                        place[p] = -1;
                    }
                for (int number = 0; number < count; number++) {
                    int32_t k = found[number];
                    float a = corner[0][k], right = corner[1][k] - a, down = corner[2][k] - a;
                    float both = corner[3][k] - corner[2][k] - right;
                    if (best.second) {
                        for (int p = 0; p < pixels; p++) {
                            float score = a + right * u[p] + down * t[p] + both * ut[p];
                            int better = score > value[p];
                            second[p] = MAX(second[p], MIN(score, value[p]));
                            value[p] = better ? score : value[p];
                            place[p] = better ? k : place[p];
                        }
                    } else {
                        for (int p = 0; p < pixels; p++) {
                            float score = a + right * u[p] + down * t[p] + both * ut[p];
                            int better = score > value[p];
                            value[p] = better ? score : value[p];
                            place[p] = better ? k : place[p];
                        }
                    }
                }
                for (int row = 0, p = 0; row < rows; row++)
                    for (int column = 0; column < columns; column++, p++) {
                        int64_t pixel = (start + row) * width + x + column;
                        int better = value[p] > best.first[pixel];
                        if (best.second)
                            best.second[pixel] = MAX(MAX(best.second[pixel], second[p]),
                                                       better ? best.first[pixel] : value[p]);
                        if (better) {
                            best.first[pixel] = value[p];
                            best.label[pixel] = labels[place[p]];
                        }
                    }
                start += rows;
            }
            x = end_x;
        }
        y = end_y;
    }
}

/* Improve what was found among other classes. The first `split` classes are the first side, the others the second. */
int joem_search(const float *table, int64_t wide, int64_t classes, int64_t split, const int64_t *labels,
                const int64_t *vertical_low, const float *vertical_step, const int64_t *horizontal_low,
                const float *horizontal_step, int64_t top, int64_t bottom, int64_t width, float *first, float *second,
                int64_t *label, float *other_first, int64_t *other_label) {
    float *highest = malloc(classes * sizeof(float));
    int32_t *found = malloc((classes + 1) * sizeof(int32_t));
    if (!highest || !found) {
        free(highest);
        free(found);
        return 1;
    }
    Axis vertical = {vertical_step, vertical_low}, horizontal = {horizontal_step, horizontal_low};
    if (split > 0)
        side(table, wide, (int)classes, 0, (int)split, labels, vertical, horizontal, top, bottom, width,
             (Best){first, second, label}, highest, found);
    if (split < classes)
        side(table, wide, (int)classes, (int)split, (int)classes, labels, vertical, horizontal, top, bottom, width,
             (Best){other_first, NULL, other_label}, highest, found);
    free(highest);
    free(found);
    return 0;
}

/* What one channel of two rows adds to the products of the first row's features, but for the last of them. */
static void add_products(const float *restrict v, const float *restrict below, int count, float *restrict own,
                         float *restrict right, float *restrict down, float *restrict across) {
    for (int x = 0; x < count; x++) {
        own[x] += v[x] * v[x];
        right[x] += v[x] * v[x + 1];
        down[x] += v[x] * below[x];
        across[x] += v[x] * below[x + 1] + v[x + 1] * below[x];
    }
}

/* The products of every feature of the rows from `top` up to `bottom` with itself and with its neighbours: right, below,
and the two diagonals of the cell together. Features are (channels, high, wide), products (4, high, wide). */
void joem_products(const float *features, int64_t channels, int64_t high, int64_t wide, int64_t top, int64_t bottom,
                   float *products) {
    int64_t plane = high * wide, last = wide - 1;
    for (int64_t y = top; y < bottom; y++) {
        float *own = products + y * wide, *right = own + plane, *down = right + plane, *across = down + plane;
        for (int64_t x = 0; x < wide; x++) own[x] = right[x] = down[x] = across[x] = 0;
        for (int64_t c = 0; c < channels; c++) {
            const float *v = features + c * plane + y * wide, *below = y + 1 < high ? v + wide : v;
            add_products(v, below, (int)last, own, right, down, across);
            own[last] += v[last] * v[last];
            down[last] += v[last] * below[last];
        }
    }
}

/* |v|^2 of every pixel of some rows: the quadratic form of bilinear interpolation in those products. */
void joem_squares(const float *products, int64_t high, int64_t wide, const int64_t *vertical_low,
                  const float *vertical_step, const int64_t *horizontal_low, const float *horizontal_step, int64_t top,
                  int64_t bottom, int64_t width, float *squares) {
    const float *own = products, *right = own + high * wide, *down = right + high * wide, *across = down + high * wide;
    for (int64_t y = top; y < bottom; y++) {
        float t = vertical_step[y], s = 1 - t;
        for (int64_t x = 0; x < width; x++) {
            float u = horizontal_step[x], w = 1 - u;
            int64_t at = vertical_low[y] * wide + horizontal_low[x], under = at + wide;
            float above = w * w * own[at] + u * u * own[at + 1] + 2 * u * w * right[at];
            float below = w * w * own[under] + u * u * own[under + 1] + 2 * u * w * right[under];
            float between = w * w * down[at] + u * u * down[at + 1] + u * w * across[at];
            float found = s * s * above + t * t * below + 2 * s * t * between;
            squares[y * width + x] = found > 0 ? found : 0;
        }
    }
}
