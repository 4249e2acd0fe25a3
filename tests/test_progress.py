"""The one progress display, where there is no terminal."""

from joem import progress


def test_lines_of_a_log_say_what_the_work_is_part_of(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_hidden", False)
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    with progress.show("trainings", 2) as done:
        with progress.show("training", 5, done=3) as advance:
            advance(note="ce 0.5")
        done()
    assert capsys.readouterr().err == "trainings 0/2, training 4/5  ce 0.5\ntrainings 1/2\n"


def test_quick_work_and_other_processes_leave_no_line(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_hidden", False)
    with progress.show("training", 1) as advance:
        advance()
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(progress, "_SECONDS", 0.0)
    with progress.show("training", 1) as advance:
        advance()
    progress.say("failed")
    assert capsys.readouterr().err == ""
