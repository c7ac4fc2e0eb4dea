# SPDX-License-Identifier: Apache-2.0
"""`shoal plan-model` as its users see it."""

import json
import subprocess

import pytest
from launching import SHOAL, needs_shoal

DEADLINE_S = 120
MODELS = ["bert-large", "gpt-2", "resnet-50", "t5-large"]

pytestmark = needs_shoal


def run(*arguments):
    return subprocess.run(
        [SHOAL, "plan-model", *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


def text(*arguments):
    result = run(*arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def plan(*arguments):
    return json.loads(text(*arguments, "--json"))


def error(*arguments):
    result = run(*arguments)
    assert result.stdout == ""
    return result.returncode, result.stderr


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_known_models_are_balanced(model, devices):
    shown = plan(model, "--devices", devices)
    assert shown["model"] == model
    assert shown["method"] in ("published", "balanced")
    assert len(shown["devices"]) == devices
    assert sum(device["cost"] for device in shown["devices"]) == pytest.approx(1)
    assert max(device["cost"] for device in shown["devices"]) == shown["largest_cost"]
    assert shown["largest_cost"] <= 1.05 * shown["optimum_cost"] + 1e-9
    assert set(shown["modules"].values()) <= set(range(devices))


def test_the_head_of_gpt_2_is_with_its_embeddings():
    shown = plan("gpt-2", "-d", 8)
    assert shown["modules"]["lm_head"] == shown["modules"]["transformer.wte"] == 0
    assert shown["devices"][0]["visits"] == 2
    assert all(device["visits"] == 1 for device in shown["devices"][1:])


def test_the_tree_stops_where_all_is_on_one_device():
    shown = text("resnet-50", "-d", 2, "--tree")
    assert "\n    conv1 to layer1: 0\n" in shown
    assert "\n    layer3 to fc: 1\n" in shown
    assert "layer3" not in text("resnet-50", "-d", 2)


def test_memory_counts_copies_and_microbatches():
    one = plan("gpt-2", "-d", 4, "--parameter-copies", 1, "--microbatches", 1)["devices"]
    many = plan("gpt-2", "-d", 4, "--parameter-copies", 4)["devices"]
    for index, (before, after) in enumerate(zip(one, many, strict=True)):
        parameters, activations = before["parameter_bytes"], before["activation_bytes"]
        assert before["memory_bytes"] == parameters + activations
        assert after["memory_bytes"] == 4 * parameters + (4 - index) * activations


def test_limits_of_memory_move_borders_or_are_refused():
    free = plan("t5-large", "-d", 4, "-w", 0)
    assert max(device["memory_bytes"] for device in free["devices"]) > 12 << 30
    limited = plan("t5-large", "-d", 4, "-w", 0, "--memory-limit", "12G")
    assert max(device["memory_bytes"] for device in limited["devices"]) <= 12 << 30
    code, message = error("t5-large", "-d", 4, "--memory-limit", "6G")
    assert code == 1
    assert "the model does not fit: the devices are full before module '" in message
    code, message = error("gpt-2", "-d", 4, "--memory-limit", "100M")
    assert code == 1
    assert "module 'transformer.wte' needs 718221312 bytes of memory, and no device" in message


def test_pipelines_run_over_the_devices(tmp_path):
    picture = tmp_path / "a.svg"
    shown = plan("bert-large", "-d", 4, "-m", 8, "-p", "1f1b", "--timeline", picture)
    (pipeline,) = shown["schedules"]
    assert pipeline["schedule"] == "1f1b"
    assert shown["stages"] == 4
    assert shown["microbatches"] == 8
    times = [device["forward_ns"] + device["backward_ns"] for device in shown["devices"]]
    for stage, time in zip(pipeline["per_stage"], times, strict=True):
        assert stage["busy_ns"] == pytest.approx(8 * time, rel=1e-6)
    assert 8 * max(times) < pipeline["step_ns"] < 8 * max(times) + sum(times)
    assert picture.read_text().startswith("<svg")
    assert {row["schedule"] for row in plan("bert-large", "-d", 4)["schedules"]} >= {
        "simple", "interleaved", "1f1b", "interleaved-1f1b", "zero-bubble", "zero-bubble-v",
    }  # fmt: skip


def test_chunks_of_placed_modules_are_equal_shares(tmp_path):
    path = tmp_path / "m.txt"
    path.write_text("model m\na 8 8 0 1000 2000 device 1\nb 8 8 0 3000 6000 device 0\n")
    shown = plan(path, "-d", 2, "-m", 2, "-p", "interleaved-1f1b")
    (pipeline,) = shown["schedules"]
    assert pipeline["chunks"] == 4
    assert [stage["busy_ns"] for stage in pipeline["per_stage"]] == [18000, 6000]


def test_layouts_are_suggested():
    free = plan("gpt-2", "--suggest", 16)["layouts"]
    assert {layout["data"] * layout["pipeline"] * layout["tensor"] for layout in free} == {16}
    assert [layout["step_ns"] for layout in free] == sorted(layout["step_ns"] for layout in free)
    assert all(layout["tensor"] <= 8 for layout in free)
    assert any(layout["data"] == 16 for layout in free)
    limited = plan("gpt-2", "--suggest", 16, "--memory-limit", "8G")["layouts"]
    assert 0 < len(limited) < len(free)
    assert max(layout["memory_bytes"] for layout in limited) <= 8 << 30
    assert all(layout["data"] < 16 for layout in limited)
    shown = text("gpt-2", "--suggest", 16, "--memory-limit", "8G")
    assert "copies alone (16 x 1 x 1) are not possible: the model is too large for a rank" in shown
    shown = text("gpt-2", "--suggest", 16, "--batch", 24)
    assert "copies alone (16 x 1 x 1) are not possible: the batch can't be divided by" in shown
    result = run("gpt-2", "--suggest", 16, "--memory-limit", "8G", "--host-ranks", 3)
    assert "16 ranks can't be 3 on each host" in result.stderr


def test_files_and_placement_by_hand(tmp_path):
    path = tmp_path / "m.txt"
    path.write_text("model m\na 10 0 5 1 1 device 1\na.b 10 0 5 1 1\nc 10 0 5 1 1\n")
    shown = plan(path, "-d", 3, "--default-device", 2)
    assert shown["method"] == "manual"
    assert shown["modules"] == {"a": 1, "a.b": 1, "c": 2}
    assert shown["crossings"] == 1
    assert shown["crossing_bytes"] == 5
    path.write_text("model m\na 10 0 5 1\n")
    assert f"{path}:2: expected NAME PARAMETERS" in error(path)[1]
    path.write_text("model m\na 10 0 5 1 1 device 2\n")
    assert "module 'a' is placed on device 2: there are 0 to 1" in error(path)[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "which model? (see shoal help plan-model)"),
        (["gpt2"], "there is no model 'gpt2': there are bert-large, gpt-10b, gpt-175b, gpt-2"),
        (["./nowhere"], "cannot read the model ./nowhere: No such file"),
        (["gpt-2", "bert-large"], "'bert-large': there is a model already"),
        (["gpt-2", "--devices", "0"], "--devices 0: it takes a number from 1 to 1024"),
        (["gpt-2", "-w", "1.1"], "--memory-weight 1.1: it takes a number from 0 to 1"),
        (["gpt-2", "-w", "x"], "--memory-weight x: it takes a number from 0 to 1"),
        (["gpt-2", "--device", "3"], "--devices"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    code, message = error(*arguments)
    assert code in (1, 2)
    assert words in message


def test_help_names_the_models():
    shown = text("--help")
    for model in MODELS:
        assert model in shown


def test_a_device_that_is_visited_twice_has_a_chunk_for_each():
    shown = plan("gpt-2", "-d", 4, "-m", 8)
    rows = {row["schedule"]: row for row in shown["schedules"]}
    head = shown["devices"][0]
    assert head["visits"] == 2
    for kind in ("simple", "interleaved"):
        assert rows[kind]["revisits"] and rows[kind]["chunks"] == 5
        assert [stage["busy_ns"] for stage in rows[kind]["per_stage"]] == [
            8 * (device["forward_ns"] + device["backward_ns"]) for device in shown["devices"]
        ]
    assert not rows["1f1b"]["revisits"] and rows["1f1b"]["chunks"] == 4
    # All forwards and backwards of one microbatch follow each other; no visit is left out.
    (row,) = plan("gpt-2", "-d", 4, "-m", 1, "-p", "simple")["schedules"]
    assert row["step_ns"] > sum(stage["busy_ns"] for stage in row["per_stage"])
    first = row["per_stage"][0]["operations"]
    assert [(each["work"], each["chunk"]) for each in first] == [
        ("forward", 0), ("forward", 4), ("backward", 4), ("backward", 0),
    ]  # fmt: skip


def test_other_schedules_say_that_they_don_t_come_back():
    said = "stages that are visited twice do all their work at the first visit"
    assert said in text("gpt-2", "-d", 4, "-p", "1f1b")
    assert said not in text("gpt-2", "-d", 4, "-p", "interleaved")
    assert said not in text("resnet-50", "-d", 4)
