#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of gradients of known models, from their published architectures.

A table has a line for each parameter tensor, in the order in which gradients become ready in a
backward pass: the reverse of the order of use in the forward pass. A line says name, shape, and how
many multiplications the forward pass makes with the tensor for one sample, which is in proportion
to the time until its gradient is ready. A tensor that is used twice is ready when its first use has
been gone back through. Names are those of the public implementation that the table names as its
source; `--check` builds these models and compares (needs torch, torchvision and transformers).

    models/make.py            writes models/*.txt
    models/make.py --check    compares them with the public implementations
"""

import argparse
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass
class Table:
    name: str
    title: str
    source: list[str]
    sample: str
    tensors: list[tuple[str, tuple[int, ...], int]] = field(default_factory=list)  # by first use
    frozen: int = 0  # parameters that take part in the model and have no gradient

    def add(self, name, shape, work=0):
        self.tensors.append((name, tuple(shape), work))

    def linear(self, name, inputs, outputs, rows, transposed=False):
        shape = (inputs, outputs) if transposed else (outputs, inputs)
        self.add(f"{name}.weight", shape, inputs * outputs * rows)
        self.add(f"{name}.bias", (outputs,))

    def norm(self, name, width):
        self.add(f"{name}.weight", (width,))
        self.add(f"{name}.bias", (width,))

    def conv(self, name, inputs, outputs, kernel, pixels, bias=False):
        work = inputs * outputs * kernel * kernel * pixels
        self.add(f"{name}.weight", (outputs, inputs, kernel, kernel), work)
        if bias:
            self.add(f"{name}.bias", (outputs,))

    def parameters(self):
        return sum(prod(shape) for _, shape, _ in self.tensors)

    def text(self):
        lines = [f"# {self.title}", *(f"# {line}" for line in self.source)]
        lines += [f"# work: multiplications of the forward pass for {self.sample}"]
        lines += ["# gradients in the order in which they become ready: name shape work"]
        lines += [f"model {self.name}", f"parameters {self.parameters()}", f"frozen {self.frozen}"]
        for name, shape, work in reversed(self.tensors):
            lines.append(f"{name} {'x'.join(map(str, shape))} {work}")
        return "\n".join(lines) + "\n"


def bert_large():
    width, rows, words = 1024, 512, 30522
    table = Table(
        "bert-large", "BERT-large, uncased, with both heads of its pretraining",
        ["source: Devlin et al., BERT (2019): 24 layers, width 1024, 16 heads, 30522 words;",
         "names and shapes as BertForPreTraining of transformers 5.23. The decoder's weight is",
         "the word embeddings' (336,226,108 parameters in all)."],
        "a sequence of 512 tokens",
    )  # fmt: skip
    table.add("bert.embeddings.word_embeddings.weight", (words, width))
    table.add("bert.embeddings.position_embeddings.weight", (512, width))
    table.add("bert.embeddings.token_type_embeddings.weight", (2, width))
    table.norm("bert.embeddings.LayerNorm", width)
    for layer in range(24):
        name = f"bert.encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            table.linear(f"{name}.attention.self.{part}", width, width, rows)
        table.linear(f"{name}.attention.output.dense", width, width, rows)
        table.norm(f"{name}.attention.output.LayerNorm", width)
        table.linear(f"{name}.intermediate.dense", width, 4 * width, rows)
        table.linear(f"{name}.output.dense", 4 * width, width, rows)
        table.norm(f"{name}.output.LayerNorm", width)
    table.linear("bert.pooler.dense", width, width, 1)
    table.linear("cls.predictions.transform.dense", width, width, rows)
    table.norm("cls.predictions.transform.LayerNorm", width)
    table.add("cls.predictions.bias", (words,), words * width * rows)
    table.linear("cls.seq_relationship", width, 2, 1)
    return table


def gpt2(name, layers, width, title):
    rows, words = 1024, 50257
    table = Table(
        name, title,
        [f"source: Radford et al., GPT-2 (2019): {layers} layers, width {width}, 50257 words;",
         "names and shapes as GPT2LMHeadModel of transformers 5.23. The head's weight is the",
         "word embeddings'."],
        "a sequence of 1024 tokens",
    )  # fmt: skip
    table.add("transformer.wte.weight", (words, width))
    table.add("transformer.wpe.weight", (1024, width))
    for layer in range(layers):
        block = f"transformer.h.{layer}"
        table.norm(f"{block}.ln_1", width)
        table.linear(f"{block}.attn.c_attn", width, 3 * width, rows, transposed=True)
        table.linear(f"{block}.attn.c_proj", width, width, rows, transposed=True)
        table.norm(f"{block}.ln_2", width)
        table.linear(f"{block}.mlp.c_fc", width, 4 * width, rows, transposed=True)
        table.linear(f"{block}.mlp.c_proj", 4 * width, width, rows, transposed=True)
    table.add("transformer.ln_f.weight", (width,), words * width * rows)
    table.add("transformer.ln_f.bias", (width,))
    return table


def resnet50_body(table, prefix, height, width, normed):
    """The layers of ResNet-50 without its classifier, on an image of height x width."""

    def pixels(scale):
        return -(-height // scale) * -(-width // scale)

    def unit(conv, norm, inputs, outputs, kernel, scale):
        table.conv(f"{prefix}{conv}", inputs, outputs, kernel, pixels(scale))
        if normed:
            table.norm(f"{prefix}{norm}", outputs)

    unit("conv1", "bn1", 3, 64, 7, 2)
    inputs, scale = 64, 4
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        planes = 64 << (stage - 1)
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            before = scale
            scale *= 2 if block == 0 and stage > 1 else 1
            unit(f"{name}.conv1", f"{name}.bn1", inputs, planes, 1, before)
            unit(f"{name}.conv2", f"{name}.bn2", planes, planes, 3, scale)
            unit(f"{name}.conv3", f"{name}.bn3", planes, 4 * planes, 1, scale)
            if block == 0:
                unit(f"{name}.downsample.0", f"{name}.downsample.1", inputs, 4 * planes, 1, scale)
            inputs = 4 * planes


def resnet50():
    table = Table(
        "resnet-50", "ResNet-50",
        ["source: He et al., Deep residual learning (2016), with the stride in the 3x3",
         "convolutions; names and shapes as resnet50 of torchvision 0.28."],
        "an image of 224 x 224",
    )  # fmt: skip
    resnet50_body(table, "", 224, 224, normed=True)
    table.linear("fc", 2048, 1000, 1)
    return table


def mask_rcnn():
    height, width, classes, boxes, masks = 800, 1344, 91, 512, 128
    table = Table(
        "mask-rcnn-r50", "Mask R-CNN with ResNet-50 and a feature pyramid",
        ["source: He et al., Mask R-CNN (2017); Lin et al., Feature pyramid networks (2017); names",
         "and shapes as maskrcnn_resnet50_fpn of torchvision 0.28 (44,401,393 parameters) with its",
         "default of three trainable stages: the stem and layer1 have no gradients, batch norm is",
         "frozen."],
        "an image of 800 x 1344 with 512 boxes, 128 of them with masks",
    )  # fmt: skip
    resnet50_body(table, "backbone.body.", height, width, normed=False)
    still = [row for row in table.tensors if ".conv1.w" in f".{row[0]}" and "layer" not in row[0]]
    still += [row for row in table.tensors if ".layer1." in row[0]]
    table.frozen = sum(prod(shape) for _, shape, _ in still)
    table.tensors = [row for row in table.tensors if row not in still]
    levels = [height * width // (scale * scale) for scale in (4, 8, 16, 32)]
    for level in (3, 2, 1, 0):
        name, inputs = "backbone.fpn", 256 << level
        table.conv(f"{name}.inner_blocks.{level}.0", inputs, 256, 1, levels[level], bias=True)
        table.conv(f"{name}.layer_blocks.{level}.0", 256, 256, 3, levels[level], bias=True)
    anchors = sum(levels) + levels[3] // 4
    table.conv("rpn.head.conv.0.0", 256, 256, 3, anchors, bias=True)
    table.conv("rpn.head.cls_logits", 256, 3, 1, anchors, bias=True)
    table.conv("rpn.head.bbox_pred", 256, 12, 1, anchors, bias=True)
    table.linear("roi_heads.box_head.fc6", 256 * 7 * 7, 1024, boxes)
    table.linear("roi_heads.box_head.fc7", 1024, 1024, boxes)
    table.linear("roi_heads.box_predictor.cls_score", 1024, classes, boxes)
    table.linear("roi_heads.box_predictor.bbox_pred", 1024, 4 * classes, boxes)
    for layer in range(4):
        table.conv(f"roi_heads.mask_head.{layer}.0", 256, 256, 3, 14 * 14 * masks, bias=True)
    name = "roi_heads.mask_predictor"
    table.conv(f"{name}.conv5_mask", 256, 256, 2, 14 * 14 * masks, bias=True)
    table.conv(f"{name}.mask_fcn_logits", 256, classes, 1, 28 * 28 * masks, bias=True)
    return table


def tables():
    return [
        bert_large(),
        resnet50(),
        mask_rcnn(),
        gpt2("gpt-2", 12, 768, "GPT-2, the smallest (124M)"),
        gpt2("gpt-2-xl", 48, 1600, "GPT-2 XL (1.5B)"),
    ]


def public_models():
    """The public implementations, without memory for their parameters."""
    import torch
    import torchvision
    import transformers

    def gpt2_of(**settings):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings))

    large = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    detection = torchvision.models.detection
    with torch.device("meta"):
        bert = transformers.BertForPreTraining(
            transformers.BertConfig(**large, intermediate_size=4096)
        )
        # As maskrcnn_resnet50_fpn does it for trained weights.
        body = detection.backbone_utils.resnet_fpn_backbone(
            backbone_name="resnet50", weights=None, trainable_layers=3
        )
        mask = detection.MaskRCNN(body, num_classes=91)
        return {
            "bert-large": bert,
            "resnet-50": torchvision.models.resnet50(weights=None),
            "mask-rcnn-r50": mask,
            "gpt-2": gpt2_of(),
            "gpt-2-xl": gpt2_of(n_layer=48, n_embd=1600, n_head=25),
        }


def check():
    models = public_models()
    for table in tables():
        ours = {name: shape for name, shape, _ in table.tensors}
        theirs = dict(models[table.name].named_parameters())
        for name in [name for name in theirs if name not in ours]:
            assert prod(theirs[name].shape) and table.frozen, f"{table.name} lacks {name}"
            table.frozen -= prod(theirs.pop(name).shape)
        assert table.frozen == 0, f"{table.name}: frozen parameters differ by {table.frozen}"
        shapes = {name: tuple(tensor.shape) for name, tensor in theirs.items()}
        assert shapes == ours, f"{table.name} differs: {set(shapes.items()) ^ set(ours.items())}"
        print(f"{table.name}: {len(ours)} tensors, {table.parameters()} parameters, as published")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the public models")
    if parser.parse_args().check:
        check()
        return
    for table in tables():
        (HERE / f"{table.name}.txt").write_text(table.text())


if __name__ == "__main__":
    main()
