from small_data import failure, write_pictures

from joem import data
from joem.errors import BadUsage


def test_open_answers_unknown_kinds_with_the_list(tmp_path):
    folder = write_pictures(tmp_path)
    assert isinstance(data.open("folder", folder, None), data.Folder)
    assert len(data.open("scenes", None, "val", count=4)) == 4
    message = failure(data.open, "coco", None, None, kind=BadUsage)
    assert "Available options are: scenes, voc, context, coco-stuff, folder" in message
    assert "say where with --root DIR, or --data.root DIR" in failure(data.open, "voc", None, "val", kind=BadUsage)
