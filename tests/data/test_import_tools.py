"""What labelling tools write: labelme, CVAT."""

import base64

import numpy as np
import pytest
from annotated_sources import (
    PIXELS,
    SQUARE,
    cvat,
    cvat_image,
    cvat_points,
    expected,
    found,
    labelme,
    labelme_mask,
    save_picture,
    write_json,
)
from small_data import failure

from joem import data, exchange


def shape(label, points, **more):
    return {"label": label, "points": [list(point) for point in points], **more}


def test_labelme_draws_in_its_order_and_sorts_the_names(tmp_path):
    save_picture(tmp_path / "day 1" / "a.jpg")
    shapes = [shape("dog", [(2, 2), (4, 2), (4, 4), (2, 4)]), shape("cow", SQUARE)]
    write_json(tmp_path / "day 1" / "a.json", labelme(shapes, "a.jpg"))
    told = data.import_masks("labelme", tmp_path, tmp_path / "out")
    assert told.names == ("background", "cow", "dog")
    assert found(tmp_path / "out") == {"a": expected((1, (1, 5), (1, 5)))}  # the dog lies under the cow
    told = data.import_masks("labelme", tmp_path / "day 1" / "a.json", tmp_path / "2", names="dog,cow", rest="void")
    assert told.names == ("dog", "cow")
    assert found(tmp_path / "2") == {"a": expected((1, (1, 5), (1, 5)), rest=255)}


def test_labelme_has_shapes_of_other_kinds(tmp_path):
    save_picture(tmp_path / "a.png")
    brush = labelme_mask(np.array([[True, False], [True, True]]), left=6, top=0)
    shapes = [
        shape("box", [(4, 5), (1, 1)], shape_type="rectangle"),
        shape("ball", [(6.5, 4.5), (6.5, 5.2)], shape_type="circle"),
        {"label": "paint", **brush},
        shape("slant", [(0, 4), (1, 4), (1, 6), (0, 6)], shape_type="oriented_rectangle"),
        shape("box", [(1, 1)], shape_type="point"),
        shape("wire", [(1, 1), (2, 2)], shape_type="linestrip"),
        shape("__ignore__", [(0, 0), (1, 0), (1, 1), (0, 1)]),
        shape("_background_", [(1, 1), (2, 1), (2, 2), (1, 2)]),
    ]
    write_json(tmp_path / "a.json", labelme(shapes, "a.png"))
    save_picture(tmp_path / "later.png")
    told = data.import_masks("labelme", tmp_path, tmp_path / "out")
    assert told.names == ("background", "ball", "box", "paint", "slant", "wire")
    painted = expected((2, (1, 4), (1, 5)), (1, (6, 7), (4, 5)), (3, (6, 7), (0, 2)), (3, (7, 8), (1, 2)))
    painted = np.array(painted)
    painted[4:, 0], painted[0, 0], painted[1, 1] = 4, 255, 0
    assert found(tmp_path / "out") == {"a": painted.tolist()}
    lines = "\n".join(told.notes.lines())
    assert "2 shapes without area were left out: point in a.json, linestrip in a.json" in lines
    assert "1 picture without annotations was left out: later.png" in lines


def test_labelme_keeps_pictures_in_its_file_or_elsewhere(tmp_path):
    picture = save_picture(tmp_path / "photos" / "a.png", colour=(1, 2, 3))
    source = labelme([shape("cow", SQUARE)], "..\\photos\\a.png")
    write_json(tmp_path / "labels" / "a.json", source)
    message = failure(data.import_masks, "labelme", tmp_path / "labels", tmp_path / "out")
    assert "1 picture that is not there: ..\\photos\\a.png of a.json. Say with --images DIR" in message
    data.import_masks("labelme", tmp_path / "labels", tmp_path / "1", images=str(tmp_path / "photos"))
    source["imageData"] = base64.b64encode(picture.read_bytes()).decode()
    write_json(tmp_path / "labels" / "a.json", source)
    data.import_masks("labelme", tmp_path / "labels", tmp_path / "2")
    for out in ("1", "2"):
        assert found(tmp_path / out) == {"a": expected((1, (1, 5), (1, 5)))}
        assert (tmp_path / out / "images" / "a.png").read_bytes() == picture.read_bytes()


def test_files_of_another_tool_are_not_taken_for_those_of_labelme(tmp_path):
    write_json(tmp_path / "instances.json", {"images": [], "annotations": [], "categories": []})
    write_json(tmp_path / "list.json", [])
    message = failure(data.import_masks, "labelme", tmp_path, tmp_path / "out")
    assert "holds no file of labelme, only 2 JSON files of another kind, such as instances.json" in message


def test_broken_labelme_files_are_all_told(tmp_path):
    for name in "abcde":
        save_picture(tmp_path / f"{name}.png")
    (tmp_path / "a.json").write_text("{")
    write_json(tmp_path / "b.json", {"version": "5"})
    write_json(tmp_path / "c.json", labelme([shape("cow", [(1, 1)]), shape("cow", SQUARE, shape_type="star")], "c.png"))
    write_json(tmp_path / "d.json", labelme([{**shape("cow", SQUARE[:2]), "shape_type": "mask", "mask": "x"}], "d.png"))
    write_json(tmp_path / "e.json", labelme([shape("cow", SQUARE)], "e.png", imageHeight=5))
    write_json(tmp_path / "f.json", labelme([shape("cow", SQUARE[:2], shape_type="mask", mask="YQ==")], "e.png"))
    write_json(tmp_path / "g.json", labelme([], "gone.png", imageData="x"))
    write_json(tmp_path / "h.json", labelme([], "gone.png", imageData="YQ=="))
    message = failure(data.import_masks, "labelme", tmp_path, tmp_path / "out")
    assert "a.json is damaged" in message
    assert "b.json ('shapes' is missing)" in message
    assert "c.json, shape 1 (an outline has three or more corners" in message
    assert "1 mask of another size than its picture: e (8x5, picture 8x6)" in message
    assert "6 pictures with broken annotations" in message
    assert "2 files that cannot be read" in message


def test_cvat_lays_shapes_by_their_order_and_keeps_labels_without_shapes(tmp_path):
    save_picture(tmp_path / "images" / "sub" / "a.jpg")
    shapes = (
        f'<polygon label="dog" source="manual" occluded="0" points="{cvat_points(PIXELS)}" z_order="2"></polygon>'
        f'<polygon label="cow" points="{cvat_points(SQUARE)}" z_order="0"><attribute name="x">1</attribute></polygon>'
        '<polyline label="cow" points="1,1;2,2"/><tag label="cow"/>'
    )
    (tmp_path / "annotations.xml").write_text(cvat(cvat_image("sub/a.jpg", shapes), labels=("dog", "cow", "hen")))
    told = data.import_masks("cvat", tmp_path, tmp_path / "out")
    assert told.names == ("background", "dog", "cow", "hen")
    assert found(tmp_path / "out") == {"a": expected((2, (1, 5), (1, 5)), (1, (3, 7), (3, 6)))}
    assert "2 shapes without area were left out: polyline in sub/a.jpg, tag in sub/a.jpg" in told.notes.lines()[0]


def test_cvat_has_boxes_ellipses_and_masks_as_runs_of_rows(tmp_path):
    save_picture(tmp_path / "images" / "a.png")
    mask = np.array([[0, 1, 1], [1, 1, 0]], bool)
    counts = ", ".join(str(count) for count in exchange.run_lengths(mask.T)["counts"])
    shapes = (
        '<box label="cow" xtl="1.0" ytl="1.0" xbr="4.0" ybr="3.0" z_order="0"/>'
        '<box label="dog" xtl="4.4" ytl="3.6" xbr="6.4" ybr="4.6" rotation="90.0"/>'
        '<ellipse label="dog" cx="6.5" cy="4.5" rx="0.7" ry="0.7"/>'
        f'<mask label="cow" rle="{counts}" left="5" top="0" width="3" height="2"/>'
    )
    (tmp_path / "annotations.xml").write_text(cvat(cvat_image("a.png", shapes)))
    data.import_masks("cvat", tmp_path / "annotations.xml", tmp_path / "out")
    painted = np.array(expected((1, (1, 4), (1, 3)), (2, (6, 7), (4, 5))))
    painted[0, 6:], painted[1, 5:7] = 1, 1
    painted[3:5, 5] = 2
    assert found(tmp_path / "out") == {"a": painted.tolist()}


def test_cvat_projects_have_subsets(tmp_path):
    for name in ("a", "b"):
        save_picture(tmp_path / "images" / f"{name}.png")
    images = cvat_image("a.png", more='subset="Train"') + cvat_image("b.png", more='subset="Validation"')
    (tmp_path / "annotations.xml").write_text(cvat(images))
    told = data.import_masks("cvat", tmp_path, tmp_path / "out")
    assert told.splits == {"train": 1, "val": 1}
    assert "2 pictures show no class: a, b" in told.notes.lines()[0]


BOMB = '<!DOCTYPE a [<!ENTITY x "yy"><!ENTITY z "&x;&x;">]>'
READS = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotations>", "cannot be read as XML: no element found"),
        ("<other/>", "is not in the format 'CVAT for images 1.1'"),
        ("<annotations><track id='0' label='cow'/></annotations>", "is not in the format 'CVAT for images 1.1'"),
        (f"{BOMB}<annotations>&z;</annotations>", "defines entities or a document type"),
        (f"{READS}<annotations>&x;</annotations>", "defines entities or a document type"),
    ],
)
def test_xml_that_is_not_cvats(tmp_path, text, message):
    (tmp_path / "annotations.xml").write_text(text)
    assert message in failure(data.import_masks, "cvat", tmp_path, tmp_path / "out")


def test_broken_cvat_shapes_are_all_told(tmp_path):
    save_picture(tmp_path / "a.png")
    shapes = (
        '<polygon label="cow" points="1,1;2,2"/><polygon points="1,1;2,2;1,3"/><hexagon label="cow"/>'
        '<box label="cow" xtl="a" ytl="1" xbr="2" ybr="2"/>'
        '<mask label="cow" rle="1,3" left="7" top="0" width="2" height="2"/>'
        '<mask label="cow" rle="1,4" left="0" top="0" width="2" height="2"/>'
    )
    images = cvat_image("a.png", shapes) + cvat_image("gone.png") + '<image name="b.png"/>'
    (tmp_path / "annotations.xml").write_text(cvat(images))
    message = failure(data.import_masks, "cvat", tmp_path, tmp_path / "out", skip_broken=True)
    assert "7 pictures with broken annotations: b.png ('height' is missing), a.png, shape 1 (an outline" in message
    assert "1 picture that is not there: gone.png" in message
