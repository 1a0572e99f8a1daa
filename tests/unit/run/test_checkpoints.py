"""A run goes on from its newest complete checkpoint, and damaged ones are kept for people to look at."""

import pytest

from primus_hydra.errors import UserError
from primus_hydra.run import manifest
from primus_hydra.run.checkpoints import checkpoint_steps, complete_steps, find_checkpoint, pick_checkpoint
from primus_hydra.run.manifest import MANIFEST, read_manifest, verify, write_manifest
from primus_hydra.run.paths import RunPaths
from primus_hydra.runtime.ledger import FileLedger


@pytest.fixture
def paths(tmp_path):
    return RunPaths(tmp_path / "run")


def files(paths, step):
    folder = paths.checkpoint(step)
    (folder / "shards").mkdir(parents=True)
    (folder / ".metadata").write_bytes(b"metadata")
    (folder / "shards" / "__0_0.distcp").write_bytes(bytes(range(256)) * 100)
    return folder


def save(paths, step):
    folder = files(paths, step)
    write_manifest(folder, step)
    return folder


def drop_manifest(folder):
    (folder / MANIFEST).unlink()


def drop_file(folder):
    (folder / ".metadata").unlink()


def shorten(folder):
    (folder / "shards" / "__0_0.distcp").write_bytes(b"short")


def flip(folder):
    path = folder / "shards" / "__0_0.distcp"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)


def tear_manifest(folder):
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:40])


def rename_other_step(folder):
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text().replace('"step": 20', '"step": 19'))


DAMAGES = {
    drop_manifest: "did not finish",
    drop_file: ".metadata is missing",
    shorten: "has 5 bytes instead of 25600",
    flip: "other content",
    tear_manifest: "cannot be read",
    rename_other_step: "belongs to step 19",
}
all_damages = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)


def test_a_saved_checkpoint_is_complete_and_keeps_what_was_noted(paths):
    folder = files(paths, 5)
    write_manifest(folder, 5, {"world_size": 2})
    assert verify(folder) is None
    assert read_manifest(folder)["extra"] == {"world_size": 2}


@all_damages
def test_every_damage_is_found_and_named(paths, damage):
    folder = save(paths, 20)
    damage(folder)
    assert DAMAGES[damage] in verify(folder).what


def test_damage_at_the_ends_of_a_large_file_is_found(paths, monkeypatch):
    monkeypatch.setattr(manifest, "WHOLE_LIMIT_BYTES", 1000)
    monkeypatch.setattr(manifest, "END_BYTES", 100)
    folder = save(paths, 5)
    shard = folder / "shards" / "__0_0.distcp"
    content = shard.read_bytes()
    for place in (0, 99, -1, -100):
        changed = bytearray(content)
        changed[place] ^= 1
        shard.write_bytes(changed)
        assert "other content" in verify(folder).what


def test_a_folder_without_files_cannot_be_declared_complete(paths):
    paths.checkpoint(5).mkdir(parents=True)
    with pytest.raises(ValueError, match="without files"):
        write_manifest(paths.checkpoint(5), 5)


def test_the_newest_complete_checkpoint_is_chosen_by_number_not_by_name(paths):
    for step in (9, 10, 100):
        save(paths, step)
    (paths.checkpoints / "notes.txt").write_text("mine")
    assert complete_steps(paths) == [9, 10, 100]
    assert pick_checkpoint(paths, "auto").step == 100


@all_damages
def test_a_damaged_newest_checkpoint_is_set_aside_with_its_files_and_the_one_before_is_used(paths, damage):
    save(paths, 10)
    damage(save(paths, 20))
    choice = pick_checkpoint(paths, "auto")
    assert choice.step == 10
    ((aside, reason),) = choice.set_aside
    assert DAMAGES[damage] in reason
    assert (aside / "shards" / "__0_0.distcp").exists()
    assert checkpoint_steps(paths) == [10]


def test_what_is_set_aside_has_a_name_that_no_backend_takes_for_a_checkpoint(paths):
    drop_manifest(save(paths, 20))
    ((aside, _),) = pick_checkpoint(paths, "auto").set_aside
    assert "step-" not in aside.name


def test_setting_the_same_step_aside_twice_keeps_both(paths):
    names = []
    for _ in range(3):
        drop_manifest(save(paths, 20))
        ((aside, _),) = pick_checkpoint(paths, "auto").set_aside
        names.append(aside)
    assert len(set(names)) == 3
    assert all(name.is_dir() for name in names)


def test_a_damaged_checkpoint_older_than_the_choice_is_left_alone(paths):
    drop_manifest(save(paths, 10))
    save(paths, 20)
    assert pick_checkpoint(paths, "auto").set_aside == ()
    assert checkpoint_steps(paths) == [10, 20]


def test_a_run_without_checkpoints_starts_from_nothing(paths):
    assert pick_checkpoint(paths, "auto").step is None


def test_must_without_a_complete_checkpoint_is_refused_and_moves_nothing(paths):
    drop_manifest(save(paths, 20))
    with pytest.raises(UserError, match="step-20 is not complete"):
        pick_checkpoint(paths, "must")
    assert checkpoint_steps(paths) == [20]


def test_never_looks_at_no_checkpoint(paths):
    drop_manifest(save(paths, 20))
    choice = pick_checkpoint(paths, "never")
    assert (choice.step, choice.set_aside) == (None, ())
    assert checkpoint_steps(paths) == [20]


def test_looking_without_picking_moves_nothing(paths):
    drop_manifest(save(paths, 20))
    choice = find_checkpoint(paths, "auto")
    assert [item.path for item in choice.set_aside] == [paths.checkpoint(20)]
    assert paths.checkpoint(20).is_dir()


def test_only_rank_0_declares_a_checkpoint_complete(paths):
    folder = files(paths, 5)
    FileLedger(paths, rank=1).completed(5)
    assert verify(folder) is not None
    FileLedger(paths, rank=0, extra={"world_size": 2}).completed(5)
    assert verify(folder) is None
