# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer over smdistributed: examples/gpt2_trainer.py has the losses of one process
however it is divided, also when it goes on from a checkpoint.

Functions named job_* run on the ranks.
"""

from __future__ import annotations

import importlib.util
import json
import os
import runpy
import sys
from functools import partial

import forked_jobs
import pytest
import ranks

torch = pytest.importorskip("torch")
if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed (tools/setup test)", allow_module_level=True)

SCRIPT = ranks.ROOT / "examples" / "gpt2_trainer.py"
TOLERANCE = 1e-5
SMALL = ("--layers", "3", "--width", "32", "--accumulate", "2", "--steps", "4", "--save-steps", "2")
CONFIG = {"partitions": 2, "microbatches": 2}


@pytest.fixture(scope="module")
def jobs():
    """What Transformers looks into the environment for is imported by the ranks."""
    modules = (
        "torch",
        "torch._dynamo",
        "accelerate",
        "sklearn.metrics",
        "transformers.data.data_collator",
        "smdistributed.modelparallel.torch",
    )
    with forked_jobs.Jobs(2, *modules) as started:
        yield started


def configure(config):
    """Before Transformers is imported."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    if config:
        os.environ["SM_HP_MP_PARAMETERS"] = json.dumps(config)
        os.environ["SM_FRAMEWORK_PARAMS"] = '{"sagemaker_mpi_enabled": true}'


def job_example(rank, size, config, output, *arguments):
    configure(config)
    sys.argv = [str(SCRIPT), *SMALL, "--output", str(output), *map(str, arguments)]
    runpy.run_path(str(SCRIPT), run_name="__main__")


def seen(output, first_step=1):
    """What the Trainer has noted of each step from the first one on, and of each evaluation."""
    history = json.loads((output / "checkpoint-4" / "trainer_state.json").read_text())
    notes = [note for note in history["log_history"] if note["step"] >= first_step]
    steps = [(note["loss"], note["learning_rate"]) for note in notes if "loss" in note]
    exact = [note[key] for note in notes for key in ("grad_norm", "eval_loss") if key in note]
    return steps, exact


def parameters(output):
    from safetensors.torch import load_file

    return load_file(output / "last" / "model.safetensors")


def assert_same(output, wanted, first_step=1):
    """Losses are noted with four digits; norms of gradients and losses of evaluations with all."""
    (steps, exact), (wanted_steps, wanted_exact) = (
        seen(output, first_step),
        seen(wanted, first_step),
    )
    assert len(steps) == 5 - first_step
    assert [rate for _, rate in steps] == [rate for _, rate in wanted_steps]
    assert [loss for loss, _ in steps] == pytest.approx(
        [loss for loss, _ in wanted_steps], abs=2e-4
    )
    assert exact == pytest.approx(wanted_exact, rel=TOLERANCE)
    torch.testing.assert_close(parameters(output), parameters(wanted), rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def alone(jobs, tmp_path_factory):
    output = tmp_path_factory.mktemp("alone")
    jobs.of(1).run(job_example, None, output, "--batch", 16)
    (losses, _) = zip(*seen(output)[0], strict=True)
    assert losses[-1] < losses[0]
    return output


@pytest.fixture(scope="module")
def four(jobs, tmp_path_factory):
    output = tmp_path_factory.mktemp("four")
    jobs.of(4).run(job_example, CONFIG | {"ddp": True}, output, "--batch", 8)
    return output


def test_two_copies_of_two_stages_learn_what_one_process_does(alone, four):
    assert_same(four, alone)
    parts = sorted(path.name for path in (four / "checkpoint-2").glob("optimizer.pt*"))
    assert parts == ["optimizer.pt_0", "optimizer.pt_1"]


def test_two_stages_go_on_from_a_checkpoint(jobs, alone, tmp_path):
    jobs.run(job_example, CONFIG, tmp_path, "--batch", 16)
    assert_same(tmp_path, alone)
    again = tmp_path / "again"
    jobs.run(job_example, CONFIG, again, "--batch", 16, "--resume", tmp_path / "checkpoint-2")
    assert_same(again, alone, first_step=3)


def job_evaluate_first(rank, size, config, output, *arguments):
    configure(config)
    from smdistributed.modelparallel.torch import trainer

    class EvaluatesFirst(trainer.Trainer):
        def train(self, **named):
            assert self.evaluate()["eval_loss"] == self.evaluate()["eval_loss"]
            return super().train(**named)

    trainer.Trainer = EvaluatesFirst
    job_example(rank, size, config, output, *arguments)


def test_evaluations_before_training_change_nothing(jobs, alone, tmp_path):
    jobs.run(job_evaluate_first, CONFIG, tmp_path, "--batch", 16)
    assert_same(tmp_path, alone)


def test_fp16_of_the_configuration_is_used(jobs, alone, tmp_path):
    jobs.run(job_example, CONFIG | {"fp16": True}, tmp_path, "--batch", 16)
    assert seen(tmp_path)[1] == pytest.approx(seen(alone)[1], rel=2e-2)
    assert all(one.dtype == torch.float16 for one in parameters(tmp_path).values())


def job_data_parallel(rank, size, output):
    """The Trainer's own data parallel training, over the other library."""
    import smdistributed.dataparallel.torch.torch_smddp  # noqa: F401 (registers the backend)

    torch.distributed.init_process_group("smddp")
    import transformers
    from smdistributed.modelparallel.torch import trainer

    trainer.TrainingArguments = partial(transformers.TrainingArguments, use_cpu=True)
    job_example(rank, size, None, output, "--batch", 8)
    return torch.distributed.get_backend()


def test_the_data_parallel_trainer_learns_what_one_process_does(jobs, alone, tmp_path):
    assert jobs.run(job_data_parallel, tmp_path) == ["smddp", "smddp"]
    assert_same(tmp_path, alone)
