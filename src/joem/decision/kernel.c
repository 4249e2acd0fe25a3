/* The best classes of every pixel, from features to labels in one go. See joem/decision/compiled.py for who calls it.

Features are worked on in strips of columns and, within those, some rows at a time, so that all that is needed stays in
the cache: the features less their centre (`pack`), the score of every class at each of them (`multiply`), and the
products of neighbours that |v|^2 follows from (`neighbours`). The pixels between two rows of features are searched
LANES at a time: each class is interpolated along the columns once, and then along the rows for every pixel.

A cell is what lies between four features. What is interpolated in it lies between the scores at its corners, so a class
whose best corner is below another's worst corner wins nowhere in it and is not searched there (`choose_classes`). */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#define GROUP 12 /* classes that are multiplied together, twice LANES features each: as many as registers hold */
#define ROWS 4   /* pixels above one another that are searched together */
#elif defined(__AVX__)
#define LANES 8
#define GROUP 6
#define ROWS 2
#else
#define LANES 4
#define GROUP 6
#define ROWS 2
#endif

#define FEW 4             /* features that are multiplied together where they are, */
#define WIDE (3 * LANES)  /* with so many classes */
#define STRIP 128 /* features in a row that are worked on together */
#define BLOCK 128 /* classes that are interpolated together */
#define DEPTH 256 /* channels that are multiplied together: LANES features of them fit the first level of the cache */
#define GROUPS 8  /* groups of classes that are: their weights fit the second level */
#define MOST 16   /* rows of pixels that are searched before classes are interpolated again, a multiple of ROWS */
#define PITCH (2 * STRIP + 48) /* an odd number of lines: channels must not fall into the same few sets of the cache */
#define LENGTH (STRIP + 32)    /* of a row of products; both with room for what is read beyond the end */

typedef float Vector __attribute__((vector_size(4 * LANES)));
typedef int32_t Whole __attribute__((vector_size(4 * LANES)));
typedef float Anywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

/* What is asked for, and where results go: pixels of (height, width), NULL where nothing is known or wanted. compiled.py
lists the same fields. */
typedef struct {
    const float *features;         /* v */
    const float *centre;           /* (channels), what v is seen from */
    const float *weight;           /* (groups, channels, group), 2 (mu - centre) */
    const float *bias;             /* (groups, group), -|mu - centre|^2 */
    const int64_t *labels;         /* (classes); neighbours with one label are one class of several prototypes */
    const int64_t *vertical_low;   /* (height), the row of features before each row of pixels */
    const float *vertical_step;    /* how far it is from that, from 0 to 1 */
    const int64_t *horizontal_low; /* (width) */
    const float *horizontal_step;
    const float *known;            /* |v|^2, if it was found before */
    float *squares;                /* |v|^2 */
    int64_t *label[2];             /* the best class of each side */
    float *distance[2];            /* to it */
    float *second;                 /* the distance to the second best class of the first side */
    int64_t by_channel, by_row, by_column; /* how far apart neighbours among the features are */
    int64_t channels, classes;
    int64_t group; /* GROUP; or all classes, rounded up to WIDE, to be multiplied where the features are */
    int64_t split; /* the first `split` classes are the first side, the others the second */
    int64_t height, width;
    int64_t parts; /* into how many parts rows of pixels are cut, for threads to take */
    int64_t taken; /* how many were */
    int64_t wrong; /* bits: 1 without memory, 2 if features are not finite */
} Task;

/* LANES pixels in a row: the feature before the first of them, how far each is from that, and how far beyond. */
typedef struct {
    Vector step;
    Whole offset;
    int64_t first;
    int near; /* whether all of these features are among LANES neighbours */
    int count;
} Tile;

/* Some rows of a strip of features. */
typedef struct {
    float *packed;        /* (channels, PITCH), less the centre */
    float *table;         /* (classes, PITCH), scores */
    float *products;      /* (6, LENGTH), see `neighbours` */
    uint64_t *cells;      /* (classes, STRIP / 64), a bit for every cell in which the class may win */
    int32_t *chosen;      /* those of the classes that may win somewhere in a tile */
    Tile *tiles;
    int64_t left, wide;   /* which columns it is */
    int64_t first, count; /* which rows are there */
    int64_t tile_count;
} Strip;

/* Whether |v|^2 has to be found. */
static inline int needs_squares(const Task *task) { return !task->known && (task->squares || task->distance[0]); }

static inline Vector load(const float *from) { return *(const Anywhere *)from; }
static inline void store(float *to, Vector value) { *(Anywhere *)to = value; }
static inline Vector every(float value) { return value - (Vector){0}; }

/* The larger and the smaller of two values, and `yes` where a > b, else `no`: compilers see no single instruction for
these in the portable form. */
#if defined(__AVX512F__)
static inline Vector larger(Vector a, Vector b) { return _mm512_max_ps(a, b); }
static inline Vector smaller(Vector a, Vector b) { return _mm512_min_ps(a, b); }
static inline Whole choose(Vector a, Vector b, Whole yes, Whole no) {
    return (Whole)_mm512_mask_mov_epi32((__m512i)no, _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ), (__m512i)yes);
}
#elif defined(__AVX__)
static inline Vector larger(Vector a, Vector b) { return _mm256_max_ps(a, b); }
static inline Vector smaller(Vector a, Vector b) { return _mm256_min_ps(a, b); }
static inline Whole choose(Vector a, Vector b, Whole yes, Whole no) {
    return (Whole)_mm256_blendv_ps((__m256)no, (__m256)yes, _mm256_cmp_ps(a, b, _CMP_GT_OQ));
}
#else
static inline Whole choose(Vector a, Vector b, Whole yes, Whole no) { return ((a > b) & yes) | (~(a > b) & no); }
static inline Vector larger(Vector a, Vector b) { return (Vector)choose(a, b, (Whole)a, (Whole)b); }
static inline Vector smaller(Vector a, Vector b) { return (Vector)choose(b, a, (Whole)a, (Whole)b); }
#endif

/* a * b + c. Compilers round the product in some places and not in others, and results must not depend on where a pixel
lies among those that are searched together. */
static inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__) && defined(__AVX__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* A bit for every lane in which a >= b. */
static inline uint64_t reaches(Vector a, Vector b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
#elif defined(__AVX__)
    return (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
#else
    uint64_t found = 0;
    for (int lane = 0; lane < LANES; lane++) found |= (uint64_t)(a[lane] >= b[lane]) << lane;
    return found;
#endif
}

/* The values before each pixel of a tile. */
static inline Vector pick(const float *row, const Tile *tile) {
#if defined(__GNUC__) && !defined(__clang__)
    if (tile->near) return __builtin_shuffle(load(row + tile->first), tile->offset);
#endif
    Vector found;
    for (int lane = 0; lane < LANES; lane++) found[lane] = row[tile->first + tile->offset[lane]];
    return found;
}

static inline Vector interpolate(const float *row, const Tile *tile) {
    Vector left = pick(row, tile);
    return multiply_add(tile->step, pick(row + 1, tile) - left, left);
}

#if defined(__AVX__)
/* Eight rows of eight numbers as eight columns. */
static inline void transpose(__m256 rows[8]) {
    __m256 pairs[8], fours[8];
    for (int i = 0; i < 8; i += 2) {
        pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            fours[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
            fours[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
        }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
    }
}

/* Eight features whose channels are neighbours, eight of those. Gives whether all are finite. */
static inline int pack_square(const Task *task, const float *from, float *to, int64_t channel) {
    const __m256 centre = _mm256_loadu_ps(task->centre + channel), most = _mm256_set1_ps(__FLT_MAX__);
    __m256 rows[8], finite = _mm256_cmp_ps(most, most, _CMP_EQ_OQ), sign = _mm256_set1_ps(-0.0f);
    for (int i = 0; i < 8; i++) {
        __m256 value = _mm256_loadu_ps(from + i * task->by_column + channel);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(_mm256_andnot_ps(sign, value), most, _CMP_LE_OQ));
        rows[i] = _mm256_sub_ps(value, centre);
    }
    transpose(rows);
    for (int i = 0; i < 8; i++) _mm256_storeu_ps(to + (channel + i) * PITCH, rows[i]);
    return _mm256_movemask_ps(finite) == 0xff;
}
#endif

/* Rows of features less their centre, into the strip from column `at` on. Gives whether all are finite. */
static int pack(const Task *task, const Strip *strip, int64_t row, int64_t rows, int64_t at) {
    int32_t wrong = 0;
    for (int64_t y = 0; y < rows; y++) {
        const float *from = task->features + (row + y) * task->by_row + strip->left * task->by_column;
        float *to = strip->packed + at + y * strip->wide;
        if (task->by_column == 1) {
            for (int64_t c = 0; c < task->channels; c++) {
                const float *restrict source = from + c * task->by_channel;
                float *restrict target = to + c * PITCH;
                float centre = task->centre[c];
                for (int64_t x = 0; x < strip->wide; x += 16) __builtin_prefetch(source + task->by_row + x, 0, 2);
                for (int64_t x = 0; x < strip->wide; x++) {
                    int32_t bits;
                    memcpy(&bits, source + x, sizeof bits);
                    wrong |= (bits & 0x7f800000) == 0x7f800000;
                    target[x] = source[x] - centre;
                }
            }
            continue;
        }
        int64_t done = 0; /* columns of which most channels are there */
#if defined(__AVX__)
        for (; task->by_channel == 1 && done + 8 <= strip->wide; done += 8)
            for (int64_t c = 0; c + 8 <= task->channels; c += 8)
                wrong |= !pack_square(task, from + done * task->by_column, to + done, c);
#endif
        for (int64_t c = 0; c < task->channels; c += 8) /* few at a time, so that lines stay in the cache */
            for (int64_t x = c + 8 <= task->channels ? done : 0; x < strip->wide; x++) {
                const float *source = from + x * task->by_column + c * task->by_channel;
                int64_t most = task->channels - c < 8 ? task->channels - c : 8;
                for (int64_t i = 0; i < most; i++) {
                    float value = source[i * task->by_channel];
                    int32_t bits;
                    memcpy(&bits, &value, sizeof bits);
                    wrong |= (bits & 0x7f800000) == 0x7f800000;
                    to[(c + i) * PITCH + x] = value - task->centre[c + i];
                }
            }
    }
    return !wrong;
}

/* Add some channels to the scores of a group of classes at LANES features, or at twice as many; to the bias at first. */
static inline __attribute__((always_inline)) void multiply_tile(const float *weight, const float *bias, const float *v,
                                                                int64_t channels, float *table, const int wide) {
    Vector sums[GROUP][2];
#pragma GCC unroll 16
    for (int k = 0; k < GROUP; k++) {
        sums[k][0] = bias ? every(bias[k]) : load(table + k * PITCH);
        sums[k][1] = bias || !wide ? every(bias ? bias[k] : 0) : load(table + k * PITCH + LANES);
    }
    for (int64_t c = 0; c < channels; c++, v += PITCH, weight += GROUP) {
        Vector left = load(v), right = wide ? load(v + LANES) : left;
#pragma GCC unroll 16
        for (int k = 0; k < GROUP; k++) {
            sums[k][0] += weight[k] * left;
            if (wide) sums[k][1] += weight[k] * right;
        }
    }
#pragma GCC unroll 16
    for (int k = 0; k < GROUP; k++) {
        store(table + k * PITCH, sums[k][0]);
        if (wide) store(table + k * PITCH + LANES, sums[k][1]);
    }
}

/* Scores of all classes at features of the strip, from column `at` on. */
static void multiply(const Task *task, const Strip *strip, int64_t at, int64_t count) {
    int64_t end = at + count, step = GROUPS * GROUP;
    for (int64_t c = 0; c < task->channels; c += DEPTH) {
        int64_t depth = task->channels - c < DEPTH ? task->channels - c : DEPTH;
        for (int64_t first = 0; first < task->classes; first += step) {
            int64_t last = first + step < task->classes ? first + step : task->classes;
            for (int64_t x = at; x < end; x += 2 * LANES) /* for all of these groups, while its features are at hand */
                for (int64_t k = first; k < last; k += GROUP) {
                    const float *weight = task->weight + k * task->channels + c * GROUP, *bias = c ? NULL : task->bias + k;
                    const float *v = strip->packed + c * PITCH + x;
                    float *table = strip->table + k * PITCH + x;
                    if (x + LANES < end) multiply_tile(weight, bias, v, depth, table, 1);
                    else multiply_tile(weight, bias, v, depth, table, 0);
                }
        }
    }
}

/* Scores of all classes at rows of features whose channels are neighbours, from column `at` of the strip on: to take such
features apart takes longer than this. Gives whether all are finite. */
static int multiply_in_place(const Task *task, const Strip *strip, int64_t row, int64_t rows, int64_t at) {
    int32_t wrong = 0;
    for (int64_t first = 0; first < task->classes; first += WIDE) {
        int64_t last = task->classes - first < WIDE ? task->classes - first : WIDE;
        for (int64_t y = 0; y < rows; y++)
            for (int64_t x = 0; x < strip->wide; x += FEW) {
                int64_t count = strip->wide - x < FEW ? strip->wide - x : FEW;
                const float *v[FEW], *weight = task->weight + first;
                Vector sums[FEW][WIDE / LANES];
#pragma GCC unroll 16
                for (int i = 0; i < FEW; i++) { /* features beyond the end are those of the last one */
                    int64_t column = strip->left + x + (i < count ? i : count - 1);
                    v[i] = task->features + (row + y) * task->by_row + column * task->by_column;
#pragma GCC unroll 16
                    for (int k = 0; k < WIDE / LANES; k++) sums[i][k] = load(task->bias + first + k * LANES);
                }
                for (int64_t c = 0; c < task->channels; c++, weight += task->group) {
                    float centre = task->centre[c];
#pragma GCC unroll 16
                    for (int i = 0; i < FEW; i++) {
                        Vector value = every(v[i][c] - centre);
#pragma GCC unroll 16
                        for (int k = 0; k < WIDE / LANES; k++) sums[i][k] += value * load(weight + k * LANES);
                    }
                }
                float *to = strip->table + first * PITCH + at + y * strip->wide + x, found[FEW][WIDE];
#pragma GCC unroll 16
                for (int i = 0; i < FEW; i++)
#pragma GCC unroll 16
                    for (int k = 0; k < WIDE / LANES; k++) store(found[i] + k * LANES, sums[i][k]);
                for (int64_t i = 0; i < count; i++)
                    for (int64_t k = 0; k < last; k++) {
                        int32_t bits;
                        memcpy(&bits, found[i] + k, sizeof bits);
                        wrong |= (bits & 0x7f800000) == 0x7f800000;
                        to[k * PITCH + i] = found[i][k];
                    }
            }
    }
    return !wrong;
}

/* Products of the features of two rows, at `upper` and below it: each with itself and with its right neighbour, in both
rows; then with the one below; then the two diagonals of the cell together. */
static void neighbours(const Task *task, const Strip *strip, int64_t upper) {
    for (int64_t x = 0; x < strip->wide; x += LANES) {
        Vector own = {0}, right = {0}, own_below = {0}, right_below = {0}, down = {0}, across = {0};
        const float *v = strip->packed + upper + x, *w = v + strip->wide;
        for (int64_t c = 0; c < task->channels; c++, v += PITCH, w += PITCH) {
            Vector a = load(v), b = load(v + 1), d = load(w), e = load(w + 1);
            own += a * a;
            right += a * b;
            own_below += d * d;
            right_below += d * e;
            down += a * d;
            across += a * e + b * d;
        }
        Vector found[6] = {own, right, own_below, right_below, down, across};
        for (int i = 0; i < 6; i++) store(strip->products + i * LENGTH + x, found[i]);
    }
}

/* |v|^2 of a tile of pixels as s^2 above + t^2 below + 2 s t between, t the step along the rows and s = 1 - t. */
static inline void quadratic(const Strip *strip, const Tile *tile, Vector found[3]) {
    Vector u = tile->step, w = 1 - u;
    for (int i = 0; i < 3; i++) {
        const float *squares = strip->products + 2 * i * LENGTH, *mixed = squares + LENGTH;
        Vector cross = pick(mixed, tile);
        found[i] = w * w * pick(squares, tile) + u * u * pick(squares + 1, tile) + (i < 2 ? 2.0f : 1.0f) * u * w * cross;
    }
}

/* What was found of a tile of pixels in some rows. */
typedef struct {
    Vector first[MOST];  /* the best score */
    Vector second[MOST]; /* that of the second best class */
    Vector own[MOST];    /* the best of the class whose prototypes are being searched */
    Whole place[MOST];   /* the prototype with the best score */
} Found;

/* The larger of two features' scores and of those after them, and the smaller. */
static inline Vector best_corner(const float *above, const float *below) {
    return larger(larger(load(above), load(above + 1)), larger(load(below), load(below + 1)));
}
static inline Vector worst_corner(const float *above, const float *below) {
    return smaller(smaller(load(above), load(above + 1)), smaller(load(below), load(below + 1)));
}

/* Mark the cells below the row of features at `upper` in which each of the prototypes from `from` up to `to` may be the
best, or that of the second best class if `two`. */
static void mark_cells(const Task *task, const Strip *strip, int64_t upper, int64_t from, int64_t to, int two) {
    const int64_t words = STRIP / 64;
    memset(strip->cells + from * words, 0, (to - from) * words * sizeof(uint64_t));
    for (int64_t x = 0; x < strip->wide; x += LANES) {
        const float *above = strip->table + upper + x, *below = above + strip->wide;
        Vector best = every(-INFINITY), next = best, own = best;
        for (int64_t k = from; k < to; k++) {
            own = larger(own, worst_corner(above + k * PITCH, below + k * PITCH));
            if (two && k + 1 < to && task->labels[k + 1] == task->labels[k]) continue;
            if (two) next = larger(next, smaller(own, best));
            best = larger(best, own);
            own = every(-INFINITY);
        }
        if (two) best = next;
        for (int64_t k = from; k < to; k++)
            strip->cells[k * words + x / 64] |= reaches(best_corner(above + k * PITCH, below + k * PITCH), best) << x % 64;
    }
}

/* List the prototypes that may win somewhere in a tile. Gives how many there are. */
static int64_t choose_classes(const Strip *strip, const Tile *tile, int64_t from, int64_t to) {
    const int64_t words = STRIP / 64, last = tile->first + tile->offset[tile->count - 1];
    uint64_t wanted[STRIP / 64] = {0};
    for (int64_t x = tile->first; x <= last; x++) wanted[x / 64] |= 1ull << x % 64;
    int64_t count = 0;
    for (int64_t k = from; k < to; k++) {
        uint64_t found = 0;
        for (int64_t i = 0; i < words; i++) found |= strip->cells[k * words + i] & wanted[i];
        strip->chosen[count] = (int32_t)k;
        count += found != 0;
    }
    return count;
}

/* Search the chosen prototypes, for the second best class too if `two`. */
static inline __attribute__((always_inline)) void search(const Task *task, const Strip *strip, const float *above,
                                                         const Tile *tile, int64_t chosen, const float *steps,
                                                         int rows, const int two, Found *found) {
    Vector start[BLOCK], slope[BLOCK];
    for (int row = 0; row < MOST; row++) {
        found->first[row] = found->second[row] = found->own[row] = every(-INFINITY);
        found->place[row] = (Whole){0};
    }
    for (int64_t k = 0; k < chosen; k += BLOCK) {
        int count = chosen - k < BLOCK ? (int)(chosen - k) : BLOCK;
        const int32_t *now = strip->chosen + k;
        for (int i = 0; i < count; i++) {
            const float *row = above + now[i] * PITCH;
            start[i] = interpolate(row, tile);
            slope[i] = interpolate(row + strip->wide, tile) - start[i];
        }
        for (int row = 0; row < rows; row += ROWS) {
            Vector best[ROWS], next[ROWS], own[ROWS], step[ROWS];
            Whole place[ROWS];
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                best[r] = found->first[row + r], next[r] = found->second[row + r], own[r] = found->own[row + r];
                place[r] = found->place[row + r], step[r] = every(steps[row + r]);
            }
            for (int i = 0; i < count; i++) {
                /* Which class it is only matters for the second best. */
                int more = two && k + i + 1 < chosen && task->labels[now[i + 1]] == task->labels[now[i]];
                int less = two && k + i > 0 && task->labels[now[i - 1]] == task->labels[now[i]];
                Whole own_place = now[i] - (Whole){0};
#pragma GCC unroll 16
                for (int r = 0; r < ROWS; r++) {
                    Vector score = multiply_add(step[r], slope[i], start[i]);
                    if (!more && !less) {
                        place[r] = choose(score, best[r], own_place, place[r]);
                    } else {
                        place[r] = choose(score, larger(best[r], own[r]), own_place, place[r]);
                        score = own[r] = larger(own[r], score);
                        if (more) continue;
                        own[r] = every(-INFINITY);
                    }
                    if (two) next[r] = larger(next[r], smaller(score, best[r]));
                    best[r] = larger(best[r], score);
                }
            }
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                found->first[row + r] = best[r], found->second[row + r] = next[r], found->own[row + r] = own[r];
                found->place[row + r] = place[r];
            }
        }
    }
}

/* Write the distances of a tile of pixels, from their scores. */
static inline void write_distances(Vector squares, Vector scores, float *to, int count) {
    Vector found = squares - scores; /* rounding may leave less than nothing */
    float roots[LANES];
    store(roots, larger(found, (Vector){0}));
    for (int lane = 0; lane < LANES; lane++) roots[lane] = sqrtf(roots[lane]);
    memcpy(to, roots, count * sizeof(float));
}

/* Whether the chosen prototypes are all of one class. */
static int is_settled(const Task *task, const Strip *strip, int64_t chosen) {
    for (int64_t i = 1; i < chosen; i++)
        if (task->labels[strip->chosen[i]] != task->labels[strip->chosen[0]]) return 0;
    return chosen > 0;
}

/* The pixels of some rows between two rows of features, the upper of which starts at `upper` in the strip. */
static void between(const Task *task, const Strip *strip, int64_t upper, int64_t y, int rows, int64_t x) {
    float steps[MOST] = {0};
    memcpy(steps, task->vertical_step + y, rows * sizeof(float));
    if (task->label[0]) mark_cells(task, strip, upper, 0, task->split, task->second != NULL);
    if (task->label[1]) mark_cells(task, strip, upper, task->split, task->classes, 0);
    for (const Tile *tile = strip->tiles; tile < strip->tiles + strip->tile_count; x += tile->count, tile++) {
        Vector squares[MOST] = {{0}}, parts[3];
        Found found;
        if (needs_squares(task)) quadratic(strip, tile, parts);
        for (int row = 0; (task->squares || task->distance[0]) && row < rows; row++) {
            int64_t pixel = (y + row) * task->width + x;
            float t = steps[row], s = 1 - t;
            if (task->known) memcpy(&squares[row], task->known + pixel, tile->count * sizeof(float));
            else squares[row] = larger(s * s * parts[0] + t * t * parts[1] + 2 * s * t * parts[2], (Vector){0});
            if (task->squares) memcpy(task->squares + pixel, &squares[row], tile->count * sizeof(float));
        }
        for (int side = 0; side < 2; side++) {
            if (!task->label[side]) continue;
            int64_t from = side ? task->split : 0, to = side ? task->classes : task->split;
            int two = side == 0 && task->second;
            int64_t chosen = choose_classes(strip, tile, from, to);
            if (!task->distance[side] && is_settled(task, strip, chosen)) { /* nothing but the label is wanted */
                for (int row = 0; row < rows; row++)
                    for (int lane = 0; lane < tile->count; lane++)
                        task->label[side][(y + row) * task->width + x + lane] = task->labels[strip->chosen[0]];
                continue;
            }
            if (two) search(task, strip, strip->table + upper, tile, chosen, steps, rows, 1, &found);
            else search(task, strip, strip->table + upper, tile, chosen, steps, rows, 0, &found);
            for (int row = 0; row < rows; row++) {
                int64_t pixel = (y + row) * task->width + x;
                for (int lane = 0; lane < tile->count; lane++)
                    task->label[side][pixel + lane] = from < to ? task->labels[found.place[row][lane]] : -1;
                if (task->distance[side])
                    write_distances(squares[row], found.first[row], task->distance[side] + pixel, tile->count);
                if (two) write_distances(squares[row], found.second[row], task->second + pixel, tile->count);
            }
        }
    }
}

/* Make the strip hold the row of features `row` and the one after it, and more of those up to `last`. */
static int advance(const Task *task, Strip *strip, int64_t row, int64_t last, int64_t capacity) {
    int64_t kept = 0, wide = strip->wide;
    if (strip->count && row == strip->first + strip->count - 1) { /* the last one becomes the first */
        int64_t from = (strip->count - 1) * wide;
        for (int64_t k = 0; k < task->classes; k++)
            memcpy(strip->table + k * PITCH, strip->table + k * PITCH + from, wide * sizeof(float));
        for (int64_t c = 0; needs_squares(task) && c < task->channels; c++)
            memcpy(strip->packed + c * PITCH, strip->packed + c * PITCH + from, wide * sizeof(float));
        kept = 1;
    }
    int64_t rows = last + 1 - row < capacity ? last + 1 - row : capacity;
    strip->first = row, strip->count = rows;
    if (task->group != GROUP) return multiply_in_place(task, strip, row + kept, rows - kept, kept * wide);
    int finite = pack(task, strip, row + kept, rows - kept, kept * wide);
    multiply(task, strip, kept * wide, (rows - kept) * wide);
    return finite;
}

/* The rows of pixels from `top` up to `bottom` in the columns from `x` up to `end`. */
static int strip_of_pixels(const Task *task, Strip *strip, int64_t x, int64_t end, int64_t top, int64_t bottom) {
    const int64_t *low = task->horizontal_low;
    strip->left = low[x], strip->wide = low[end - 1] + 2 - low[x];
    strip->tile_count = strip->count = 0;
    for (int64_t at = x; at < end; at += LANES) {
        Tile *tile = &strip->tiles[strip->tile_count++];
        *tile = (Tile){.first = low[at] - strip->left, .count = (int)(end - at < LANES ? end - at : LANES)};
        for (int lane = 0; lane < tile->count; lane++) {
            tile->step[lane] = task->horizontal_step[at + lane];
            tile->offset[lane] = (int32_t)(low[at + lane] - low[at]);
        }
        tile->near = tile->offset[tile->count - 1] < LANES;
    }
    int64_t capacity = 2 * STRIP / strip->wide, last = task->vertical_low[bottom - 1] + 1;
    for (int64_t y = top; y < bottom;) {
        int64_t row = task->vertical_low[y], rows = 1;
        while (y + rows < bottom && rows < MOST && task->vertical_low[y + rows] == row) rows++;
        if (!strip->count || row + 1 >= strip->first + strip->count)
            if (!advance(task, strip, row, last, capacity)) return 2;
        int64_t upper = (row - strip->first) * strip->wide;
        if (needs_squares(task)) neighbours(task, strip, upper);
        between(task, strip, upper, y, (int)rows, x);
        y += rows;
    }
    return 0;
}

/* Whole lines of memory. */
static void *allocate(size_t bytes) { return aligned_alloc(64, (bytes / 64 + 1) * 64); }

/* The rows of pixels from `top` up to `bottom`. Gives what is wrong, as in the task. */
static int rows_of_pixels(const Task *task, int64_t top, int64_t bottom) {
    int64_t groups = (task->classes + GROUP - 1) / GROUP;
    Strip strip = {
        .packed = allocate(task->group == GROUP ? task->channels * PITCH * sizeof(float) : 0),
        .table = allocate(groups * GROUP * PITCH * sizeof(float)),
        .products = allocate(6 * LENGTH * sizeof(float)),
        .cells = allocate(task->classes * (STRIP / 64) * sizeof(uint64_t)),
        .chosen = allocate((task->classes + 1) * sizeof(int32_t)),
        .tiles = allocate((task->width + LANES - 1) / LANES * sizeof(Tile)),
    };
    int wrong = !strip.packed || !strip.table || !strip.products || !strip.cells || !strip.chosen || !strip.tiles;
    for (int64_t x = 0; !wrong && x < task->width;) {
        int64_t end = x + 1;
        while (end < task->width && task->horizontal_low[end] - task->horizontal_low[x] < STRIP - 1) end++;
        wrong = strip_of_pixels(task, &strip, x, end, top, bottom);
        x = end;
    }
    free(strip.packed);
    free(strip.table);
    free(strip.products);
    free(strip.cells);
    free(strip.chosen);
    free(strip.tiles);
    return wrong;
}

/* Work on parts of a task that no other thread has taken, until there are none. */
void joem_work(Task *task) {
    for (;;) {
        int64_t part = __atomic_fetch_add(&task->taken, 1, __ATOMIC_RELAXED);
        if (part >= task->parts) return;
        int64_t top = task->height * part / task->parts, bottom = task->height * (part + 1) / task->parts;
        int wrong = rows_of_pixels(task, top, bottom);
        __atomic_fetch_or(&task->wrong, wrong, __ATOMIC_RELAXED);
    }
}

int64_t joem_group(void) { return GROUP; }

int64_t joem_wide(void) { return WIDE; }
