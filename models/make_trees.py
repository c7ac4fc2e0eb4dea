#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the trees of modules of known models, from their published architectures.

`shoal plan-model` cuts them over devices; docs/plan.md has the form of the files. A line stands for
a module, in the order in which modules run, with what is its own: bytes of parameters, and per
microbatch bytes of activations, bytes of its output, and forward and backward time. Assumptions:

  - parameters and activations are fp32
  - matrix products and convolutions make 10^13 multiplications per second; everything else reads
    and writes its elements at 10^12 bytes per second; the backward pass takes twice as long
  - a module keeps its input for the backward pass, unless the one before it keeps the same; an
    attention also its queries, keys, values and probabilities. Dropout and the loss are left out

Module names are those of the public implementation that a tree names as its source; `--check`
builds these models and compares parameters (needs torch, torchvision and transformers).

    models/make_trees.py            writes models/trees/*.txt
    models/make_trees.py --check    compares them with the public implementations
"""

import argparse
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ELEMENT_BYTES = 4
MULTIPLICATIONS_PER_NS = 10_000
BYTES_PER_NS = 1_000


@dataclass
class Module:
    name: str
    parameters: int = 0  # elements, as the rest
    kept: int = 0
    output: int = 0
    multiplications: int = 0
    moved: int = 0  # elements that are read or written besides
    shares: str = ""

    def line(self):
        forward = self.multiplications / MULTIPLICATIONS_PER_NS
        forward = round(forward + self.moved * ELEMENT_BYTES / BYTES_PER_NS)
        sizes = [count * ELEMENT_BYTES for count in (self.parameters, self.kept, self.output)]
        numbers = " ".join(map(str, [*sizes, forward, 2 * forward]))
        return f"{self.name} {numbers}" + (f" shares {self.shares}" if self.shares else "")


@dataclass
class Tree:
    name: str
    title: str
    source: list[str]
    microbatch: str
    modules: list[Module] = field(default_factory=list)

    def holder(self, name, output=0):
        self.modules.append(Module(name, output=output))

    def linear(self, name, inputs, outputs, rows, keeps=True, bias=True, shares=""):
        parameters = 0 if shares else inputs * outputs + (outputs if bias else 0)
        kept = inputs * rows if keeps else 0
        self.modules.append(
            Module(name, parameters, kept, outputs * rows, inputs * outputs * rows, shares=shares)
        )

    def norm(self, name, width, rows, bias=True):
        elements = width * rows
        parameters = 2 * width if bias else width
        self.modules.append(Module(name, parameters, elements, elements, moved=2 * elements))

    def embedding(self, name, count, width, rows, shares=""):
        elements = width * rows
        parameters = 0 if shares else count * width
        self.modules.append(Module(name, parameters, 0, elements, 0, 2 * elements, shares))

    def elementwise(self, name, elements, output=None, keeps=True):
        kept = elements if keeps else 0
        output = elements if output is None else output
        self.modules.append(Module(name, 0, kept, output, moved=elements + output))

    def attention(self, name, width, queries, keys, heads, sequences):
        """Its own work: scores, softmax and the weighted sum; the projections are modules."""
        scores = heads * queries * keys * sequences
        kept = width * (queries + 2 * keys) * sequences + scores
        work = 2 * width * queries * keys * sequences
        output = width * queries * sequences
        self.modules.append(Module(name, 0, kept, output, work, moved=2 * scores))

    def conv(self, name, inputs, outputs, kernel, before, after, bias=False):
        weights = inputs * outputs * kernel * kernel
        parameters = weights + (outputs if bias else 0)
        self.modules.append(
            Module(name, parameters, inputs * before, outputs * after, weights * after)
        )

    def parameters(self):
        return sum(module.parameters for module in self.modules)

    def text(self):
        lines = [f"# {self.title}", *(f"# {line}" for line in self.source)]
        lines += [
            f"# a microbatch: {self.microbatch}",
            f"# fp32; {MULTIPLICATIONS_PER_NS * 10**9:.0e} multiplications and "
            f"{BYTES_PER_NS * 10**9:.0e} bytes per second; backward takes twice as long",
            "# name, bytes of parameters, activations and output, ns forward and backward",
            f"model {self.name}",
        ]
        return "\n".join([*lines, *(module.line() for module in self.modules)]) + "\n"


def gpt2():
    width, words, heads, length, sequences = 768, 50257, 12, 1024, 8
    rows = length * sequences
    tree = Tree(
        "gpt-2", "GPT-2, the smallest (124M)",
        ["source: Radford et al., GPT-2 (2019): 12 layers, width 768, 50257 words;",
         "names as GPT2LMHeadModel of transformers 5.23. The head's weight is the word",
         "embeddings'."],
        f"{sequences} sequences of {length} tokens",
    )  # fmt: skip
    tree.holder("transformer", width * rows)
    tree.embedding("transformer.wte", words, width, rows)
    tree.embedding("transformer.wpe", 1024, width, rows)
    tree.holder("transformer.h", width * rows)
    for layer in range(12):
        block = f"transformer.h.{layer}"
        tree.holder(block, width * rows)
        tree.norm(f"{block}.ln_1", width, rows)
        tree.attention(f"{block}.attn", width, length, length, heads, sequences)
        tree.linear(f"{block}.attn.c_attn", width, 3 * width, rows)
        tree.linear(f"{block}.attn.c_proj", width, width, rows)
        tree.norm(f"{block}.ln_2", width, rows)
        tree.holder(f"{block}.mlp", width * rows)
        tree.linear(f"{block}.mlp.c_fc", width, 4 * width, rows)
        tree.elementwise(f"{block}.mlp.act", 4 * width * rows)
        tree.linear(f"{block}.mlp.c_proj", 4 * width, width, rows)
    tree.norm("transformer.ln_f", width, rows)
    tree.linear("lm_head", width, words, rows, bias=False, shares="transformer.wte")
    return tree


def bert_large():
    width, words, heads, length, sequences = 1024, 30522, 16, 512, 8
    rows = length * sequences
    tree = Tree(
        "bert-large", "BERT-large, uncased, with both heads of its pretraining",
        ["source: Devlin et al., BERT (2019): 24 layers, width 1024, 16 heads, 30522 words;",
         "names as BertForPreTraining of transformers 5.23. The decoder's weight is the word",
         "embeddings'."],
        f"{sequences} sequences of {length} tokens",
    )  # fmt: skip
    tree.holder("bert", width * rows)
    tree.holder("bert.embeddings", width * rows)
    tree.embedding("bert.embeddings.word_embeddings", words, width, rows)
    tree.embedding("bert.embeddings.position_embeddings", 512, width, rows)
    tree.embedding("bert.embeddings.token_type_embeddings", 2, width, rows)
    tree.norm("bert.embeddings.LayerNorm", width, rows)
    tree.holder("bert.encoder", width * rows)
    tree.holder("bert.encoder.layer", width * rows)
    for layer in range(24):
        name = f"bert.encoder.layer.{layer}"
        tree.holder(name, width * rows)
        tree.holder(f"{name}.attention", width * rows)
        tree.attention(f"{name}.attention.self", width, length, length, heads, sequences)
        for part in ("query", "key", "value"):
            keeps = part == "query"
            tree.linear(f"{name}.attention.self.{part}", width, width, rows, keeps)
        tree.holder(f"{name}.attention.output", width * rows)
        tree.linear(f"{name}.attention.output.dense", width, width, rows)
        tree.norm(f"{name}.attention.output.LayerNorm", width, rows)
        tree.holder(f"{name}.intermediate", 4 * width * rows)
        tree.linear(f"{name}.intermediate.dense", width, 4 * width, rows)
        tree.elementwise(f"{name}.intermediate.intermediate_act_fn", 4 * width * rows)
        tree.holder(f"{name}.output", width * rows)
        tree.linear(f"{name}.output.dense", 4 * width, width, rows)
        tree.norm(f"{name}.output.LayerNorm", width, rows)
    tree.holder("bert.pooler", width * sequences)
    tree.linear("bert.pooler.dense", width, width, sequences)
    tree.holder("cls", words * rows)
    tree.linear("cls.seq_relationship", width, 2, sequences)  # runs before or after the other
    tree.holder("cls.predictions", words * rows)
    tree.holder("cls.predictions.transform", width * rows)
    tree.linear("cls.predictions.transform.dense", width, width, rows)
    tree.elementwise("cls.predictions.transform.transform_act_fn", width * rows)
    tree.norm("cls.predictions.transform.LayerNorm", width, rows)
    shared = "bert.embeddings.word_embeddings"
    tree.linear("cls.predictions.decoder", width, words, rows, bias=False, shares=shared)
    tree.modules[-1].parameters = words  # its bias is its own
    return tree


def resnet50():
    images = 32
    tree = Tree(
        "resnet-50", "ResNet-50",
        ["source: He et al., Deep residual learning (2016), with the stride in the 3x3",
         "convolutions; names as resnet50 of torchvision 0.28."],
        f"{images} images of 224 x 224",
    )  # fmt: skip

    def pixels(scale):
        return (224 // scale) ** 2 * images

    def unit(name, number, inputs, outputs, kernel, before, after):
        tree.conv(f"{name}conv{number}", inputs, outputs, kernel, pixels(before), pixels(after))
        tree.norm(f"{name}bn{number}", outputs, pixels(after))

    unit("", 1, 3, 64, 7, 1, 2)
    tree.elementwise("relu", 64 * pixels(2))
    tree.elementwise("maxpool", 64 * pixels(2), output=64 * pixels(4), keeps=False)
    inputs, scale = 64, 4
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        planes = 64 << (stage - 1)
        after = scale * (2 if stage > 1 else 1)
        tree.holder(f"layer{stage}", 4 * planes * pixels(after))
        for block in range(blocks):
            name = f"layer{stage}.{block}."
            tree.holder(name[:-1], 4 * planes * pixels(after))
            unit(name, 1, inputs, planes, 1, scale, scale)
            unit(name, 2, planes, planes, 3, scale, after)
            unit(name, 3, planes, 4 * planes, 1, after, after)
            if block == 0:
                down, size = f"{name}downsample", 4 * planes * pixels(after)
                tree.holder(down, size)
                tree.conv(f"{down}.0", inputs, 4 * planes, 1, 0, pixels(after))
                tree.norm(f"{down}.1", 4 * planes, pixels(after))
            tree.elementwise(f"{name}relu", 4 * planes * pixels(after), keeps=False)
            inputs, scale = 4 * planes, after
    tree.elementwise("avgpool", 2048 * pixels(32), output=2048 * images, keeps=False)
    tree.linear("fc", 2048, 1000, images)
    return tree


def t5_attention(tree, name, heads, queries, keys, sequences, biased):
    width, rows = 64 * heads, queries * sequences
    tree.attention(name, width, queries, keys, heads, sequences)
    tree.linear(f"{name}.q", width, width, rows, bias=False)
    tree.linear(f"{name}.k", width, width, keys * sequences, keeps=False, bias=False)
    tree.linear(f"{name}.v", width, width, keys * sequences, keeps=False, bias=False)
    tree.linear(f"{name}.o", width, width, rows, bias=False)
    if biased:
        tree.modules.append(
            Module(f"{name}.relative_attention_bias", 32 * heads, moved=heads * queries * keys)
        )


def t5_stack(tree, stack, lengths, sequences):
    """The encoder, or the decoder, whose second attention is to the encoder's output."""
    width, hidden, heads = 1024, 4096, 16
    rows = lengths[0] * sequences
    tree.holder(stack, width * rows)
    tree.embedding(f"{stack}.embed_tokens", 32128, width, rows, shares="shared")
    tree.holder(f"{stack}.block", width * rows)
    for block in range(24):
        tree.holder(f"{stack}.block.{block}", width * rows)
        tree.holder(f"{stack}.block.{block}.layer", width * rows)
        for number, keys in enumerate(lengths):
            layer = f"{stack}.block.{block}.layer.{number}"
            tree.holder(layer, width * rows)
            tree.norm(f"{layer}.layer_norm", width, rows, bias=False)
            name = f"{layer}.{'EncDecAttention' if number else 'SelfAttention'}"
            biased = block == number == 0
            t5_attention(tree, name, heads, lengths[0], keys, sequences, biased)
        layer = f"{stack}.block.{block}.layer.{len(lengths)}"
        tree.holder(layer, width * rows)
        tree.norm(f"{layer}.layer_norm", width, rows, bias=False)
        tree.holder(f"{layer}.DenseReluDense", width * rows)
        tree.linear(f"{layer}.DenseReluDense.wi", width, hidden, rows, bias=False)
        tree.elementwise(f"{layer}.DenseReluDense.act", hidden * rows, keeps=False)
        tree.linear(f"{layer}.DenseReluDense.wo", hidden, width, rows, bias=False)
    tree.norm(f"{stack}.final_layer_norm", width, rows, bias=False)


def t5_large():
    width, words, sources, targets, sequences = 1024, 32128, 512, 128, 8
    tree = Tree(
        "t5-large", "T5-large (770M)",
        ["source: Raffel et al., T5 (2020): 24 and 24 layers, width 1024, 16 heads, 32128 words;",
         "names as T5ForConditionalGeneration of transformers 5.23. Both stacks and the head use",
         "the same embeddings."],
        f"{sequences} sequences of {sources} tokens in and {targets} out",
    )  # fmt: skip
    tree.modules.append(Module("shared", words * width))
    t5_stack(tree, "encoder", [sources], sequences)
    t5_stack(tree, "decoder", [targets, sources], sequences)
    tree.linear("lm_head", width, words, targets * sequences, bias=False, shares="shared")
    return tree


@dataclass
class LargeGpt:
    """A GPT of many layers in 16 bits, a line for each layer, at an accelerator's peak.

    A layer keeps its input only and is gone through again before its backward pass. The head has
    embeddings of its own, because it lies on the last stage of a pipeline and theirs on the first.
    """

    name: str
    layers: int
    width: int
    length: int
    words: int

    PEAK_PER_NS = 312_000  # floating point operations
    BYTES = 2

    def parameters(self):
        width = self.width
        layer = 12 * width**2 + 13 * width
        embeddings = (self.words + self.length) * width
        return embeddings + self.layers * layer + 2 * width + self.words * width

    def line(self, name, parameters, kept, output, work, again=0):
        forward = work / self.PEAK_PER_NS
        sizes = [count * self.BYTES for count in (parameters, kept, output)]
        return " ".join(map(str, [name, *sizes, round(forward), round((2 + again) * forward)]))

    def text(self):
        width, length, words = self.width, self.length, self.words
        rows = width * length
        products = 24 * width * rows + 4 * length * rows
        layer = (12 * width**2 + 13 * width, rows, rows, products, 1)
        return "\n".join([
            f"# a GPT of {self.layers} layers, width {width}, {words} words",
            f"# {self.parameters():,} parameters; the head has its own embeddings",
            f"# a microbatch: one sequence of {length} tokens; 16 bits",
            f"# times at {self.PEAK_PER_NS / 1000:.0f} TFLOP/s: 24 s h^2 + 4 s^2 h operations for "
            "a layer's forward pass;",
            "# layers keep their input only: their backward pass takes three times as long",
            "# name, bytes of parameters, activations and output, ns forward and backward",
            f"model {self.name}",
            self.line("embeddings", (words + length) * width, 0, rows, 0),
            self.line("h", 0, 0, rows, 0),
            *(self.line(f"h.{number}", *layer) for number in range(self.layers)),
            self.line("ln_f", 2 * width, rows, rows, 0),
            self.line("head", words * width, words * length, words * length, 2 * words * rows),
        ]) + "\n"  # fmt: skip


def large_gpts():
    """Brown et al., GPT-3 (2020), and shapes of our own for three published sizes."""
    return [
        LargeGpt("gpt-175b", 96, 12288, 2048, 50257),
        LargeGpt("gpt-10b", 48, 4096, 512, 50000),
        LargeGpt("gpt-30b", 48, 7168, 512, 50000),
        LargeGpt("gpt-60b", 74, 8192, 512, 50000),
    ]


def trees():
    return [gpt2(), bert_large(), resnet50(), t5_large()]


def public_models():
    """The public implementations, without memory for their parameters."""
    import torch
    import torchvision
    import transformers

    bert = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    t5 = {"d_model": 1024, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
    with torch.device("meta"):
        return {
            "gpt-2": transformers.GPT2LMHeadModel(transformers.GPT2Config()),
            "bert-large": transformers.BertForPreTraining(
                transformers.BertConfig(**bert, intermediate_size=4096)
            ),
            "resnet-50": torchvision.models.resnet50(weights=None),
            "t5-large": transformers.T5ForConditionalGeneration(transformers.T5Config(**t5)),
        }


def check():
    models = public_models()
    for tree in trees():
        theirs = dict(models[tree.name].named_modules(remove_duplicate=False))
        ours = {module.name: module for module in tree.modules}
        seen = set()
        # Those that only hold others last: a head's bias may be registered a second time there.
        for module in sorted(tree.modules, key=lambda module: not module.parameters):
            assert module.name in theirs, f"{tree.name} has no {module.name}"
            own = dict(theirs[module.name].named_parameters(recurse=False))
            count = sum(tensor.numel() for tensor in own.values() if id(tensor) not in seen)
            seen.update(map(id, own.values()))
            assert count == module.parameters, f"{tree.name}: {module.name} has {count} parameters"
        forgotten = [
            name for name, module in theirs.items()
            if name not in ours and any(id(p) not in seen for p in module.parameters(recurse=False))
        ]  # fmt: skip
        assert not forgotten, f"{tree.name} lacks {forgotten}"
        print(f"{tree.name}: {len(ours)} modules, {tree.parameters()} parameters, as published")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the public models")
    if parser.parse_args().check:
        check()
        return
    for tree in [*trees(), *large_gpts()]:
        (HERE / "trees" / f"{tree.name}.txt").write_text(tree.text())


if __name__ == "__main__":
    main()
