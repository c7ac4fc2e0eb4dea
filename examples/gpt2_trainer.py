# SPDX-License-Identifier: Apache-2.0
"""A small GPT-2 learns Python's own manual, by the Trainer of Hugging Face's Transformers (4.x).

    build/release/shoal run -n 4 \\
        --model-parallel '{"partitions": 2, "microbatches": 2, "ddp": true}' \\
        .venv/bin/python examples/gpt2_trainer.py

cuts it in two stages, of which there are two copies; without --model-parallel, and without
`shoal run`, it is trained by one process alone (docs/modelparallel.md, "Hugging Face Trainer").
Needs bindings/python and bindings/smdistributed in PYTHONPATH, or both wheels, and transformers.
"""

from __future__ import annotations

import argparse
from pydoc_data.topics import topics

import torch
from smdistributed.modelparallel.torch.trainer import Trainer, TrainingArguments
from transformers import GPT2Config, GPT2LMHeadModel, set_seed

CONTEXT = 32  # bytes that the network sees
EVALUATED, TRAINED = 32, 4096  # passages


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=64, help="of a layer, a multiple of 16")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16, help="passages of each copy")
    parser.add_argument("--accumulate", type=int, default=1, help="batches of a step")
    parser.add_argument("--output", default="out/gpt2", help="folder of the checkpoints")
    parser.add_argument("--save-steps", type=int, default=10)
    parser.add_argument("--resume", help="a checkpoint: a folder")
    return parser.parse_args()


class Passages(torch.utils.data.Dataset):
    """Of the manual, in random order."""

    def __init__(self, first: int, count: int):
        text = torch.frombuffer(bytearray("".join(topics.values()).encode()), dtype=torch.uint8)
        passages = text[: len(text) // CONTEXT * CONTEXT].long().view(-1, CONTEXT)
        order = torch.randperm(len(passages), generator=torch.Generator().manual_seed(1))
        self.passages = passages[order[first : first + count]]

    def __len__(self) -> int:
        return len(self.passages)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """The first byte is not predicted, so it does not count: without -100 in its place, the
        Trainer divides losses by one byte too many, but under model parallel it does not."""
        labels = self.passages[index].clone()
        labels[0] = -100
        return {"input_ids": self.passages[index], "labels": labels}


def main() -> None:
    given = parse_arguments()
    arguments = TrainingArguments(
        output_dir=given.output,
        max_steps=given.steps,
        per_device_train_batch_size=given.batch,
        gradient_accumulation_steps=given.accumulate,
        learning_rate=1e-3,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=given.save_steps,
        save_steps=given.save_steps,
        report_to="none",
        disable_tqdm=True,
    )
    set_seed(1)
    config = GPT2Config(
        vocab_size=256,
        n_positions=CONTEXT,
        n_embd=given.width,
        n_layer=given.layers,
        n_head=given.width // 16,
        use_cache=False,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
    )
    trainer = Trainer(
        model=GPT2LMHeadModel(config),
        args=arguments,
        train_dataset=Passages(EVALUATED, TRAINED),
        eval_dataset=Passages(0, EVALUATED),
    )
    trainer.train(resume_from_checkpoint=given.resume)
    trainer.save_model(f"{given.output}/last")


if __name__ == "__main__":
    main()
