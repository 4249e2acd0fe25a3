from joem.semantics import imagenet


def test_meanings_are_names_with_their_dictionary_entries():
    assert len(set(imagenet.meanings())) == 1000
    assert imagenet.meanings()[339] == "sorrel, a horse of a brownish orange to light brown color"
    assert all(text.startswith(f"{name}, ") for name, text in zip(imagenet.names(), imagenet.meanings(), strict=True))
    assert not [text for text in imagenet.meanings() if text.endswith(", ")]
