#!/usr/bin/env python3
"""Trains a cartridge for a text, or brings a checkpoint of its authors' code into a folder that `kvarena fit` reads.

    pip install torch transformers safetensors gguf
    scripts/train_cartridge.py train MODEL_FOLDER TEXT.txt OUT --entries 64
    scripts/train_cartridge.py convert MODEL_FOLDER cache-step100.pt OUT
    kvarena fit cartridges --model NAME --from OUT

Training is self-study (Eyuboglu et al. 2025, arXiv:2506.06266, section 4): the model, with the text before it, is asked
to ask about it and answers itself; with the cartridge before it, it is to give the probabilities that it gave with the
text, all of them, at each token of the answers. Entries begin as those of the text's first tokens; the first entry
stays (section 3). The text stands where `kvarena` puts a context: at the beginning of the user's message.

OUT gets config.json, which is the model's, and model.safetensors: layers.N.{fixed,trainable}_{keys,values}, each
[1, kv_heads, entries, head_dim], keys turned to positions 0, 1, ... as transformers caches them."""

import argparse
import pathlib
import random
import sys

import torch
from safetensors.torch import save_file

SIDES = ("fixed_keys", "fixed_values", "trainable_keys", "trainable_values")

# What the model is asked for, beside the text: kinds of the paper's seed prompts (section 4.1).
SEEDS = ("Ask a question about a fact in the text above.", "Ask for a summary of a part of the text above.",
         "Ask what follows from the text above.", "Ask where, when or by whom something in the text above was done.",
         "Ask to list things that the text above names.")


def of(folder):
    """Arguments that name a model's folder, or the .gguf file in it, to transformers."""
    files = list(pathlib.Path(folder).glob("*.gguf"))
    return {"pretrained_model_name_or_path": folder, **({"gguf_file": files[0].name} if files else {})}


def write_folder(parts, model_folder, out):
    """parts: by side a list over layers of tensors [1, kv_heads, entries, head_dim]; empty lists are left out."""
    from transformers import AutoConfig
    out = pathlib.Path(out)
    config = AutoConfig.from_pretrained(**of(model_folder))
    config._name_or_path = ""  # a folder of this machine
    config.save_pretrained(out)
    save_file({f"layers.{layer}.{side}": entries.detach().float().contiguous()
               for side in SIDES for layer, entries in enumerate(parts[side])}, out / "model.safetensors")


def convert(args):
    """TrainableCache.save() of HazyResearch/cartridges writes these four lists."""
    checkpoint = torch.load(args.checkpoint, map_location="cpu", weights_only=False)
    missing = [side for side in SIDES if side not in checkpoint]
    if missing:
        raise SystemExit(f"{args.checkpoint}: no {', '.join(missing)}; expected what TrainableCache.save() writes")
    write_folder({side: list(checkpoint[side]) for side in SIDES}, args.model, args.out)


class Cartridge:
    """Entries in training, of each layer keys and values."""

    def __init__(self, cache, entries):
        layers = [(layer.keys[:, :, :entries], layer.values[:, :, :entries]) for layer in cache.layers]
        self.fixed = [[side[:, :, :1].clone() for side in layer] for layer in layers]
        self.trained = [[torch.nn.Parameter(side[:, :, 1:].clone()) for side in layer] for layer in layers]

    def parameters(self):
        return [side for layer in self.trained for side in layer]

    def cache(self, batch):
        from transformers import DynamicCache
        cache = DynamicCache()
        for index, (fixed, trained) in enumerate(zip(self.fixed, self.trained)):
            keys, values = (torch.cat(pair, 2).expand(batch, -1, -1, -1) for pair in zip(fixed, trained))
            cache.update(keys, values, index)
        return cache

    def parts(self):
        return {f"{kind}_{name}": [layer[side] for layer in layers] for kind, layers in
                (("fixed", self.fixed), ("trainable", self.trained)) for side, name in enumerate(("keys", "values"))}


class Study:
    """A model, its tokenizer, and the user's message that begins with the text."""

    def __init__(self, args):
        from transformers import AutoModelForCausalLM, AutoTokenizer
        self.tokenizer = AutoTokenizer.from_pretrained(**of(args.model))
        self.model = AutoModelForCausalLM.from_pretrained(**of(args.model)).float().eval().requires_grad_(False)
        mark = "\x00"
        template = self.tokenizer.apply_chat_template([{"role": "user", "content": mark}], tokenize=False,
                                                      add_generation_prompt=True)
        before, self.after = template.split(mark)
        self.context = self.ids(before + pathlib.Path(args.text).read_text())
        self.args = args

    def ids(self, text):
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def draw(self, asked, count):
        """An answer of at most `count` tokens to the text and what is asked behind it."""
        tokens = torch.tensor([self.context + self.ids("\n\n" + asked + self.after)])
        out = self.model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=count, do_sample=True,
                                  temperature=0.8, pad_token_id=self.tokenizer.eos_token_id)
        return out[0, tokens.shape[1]:].tolist()

    @torch.no_grad()
    def conversation(self, seed):
        """Tokens behind the text, where the answer begins, and the log probabilities from there on."""
        question = self.tokenizer.decode(self.draw(seed, self.args.question), skip_special_tokens=True).strip()
        asked = self.ids("\n\n" + question + self.after)
        behind = asked + self.draw(question, self.args.answer)
        logits = self.model(torch.tensor([self.context + behind])).logits[0]
        first = len(asked) - 1
        return behind, first, logits[len(self.context) + first: -1].log_softmax(-1)


def loss_of(study, cartridge, conversation):
    behind, first, wanted = conversation
    own = study.model(torch.tensor([behind]), past_key_values=cartridge.cache(1)).logits[0, first:-1].log_softmax(-1)
    return (wanted.exp() * (wanted - own)).sum(-1).mean()


def train(args):
    torch.manual_seed(args.seed)
    draws = random.Random(args.seed)
    study = Study(args)
    if len(study.context) <= args.entries:
        raise SystemExit(f"{args.text}: {len(study.context)} tokens; expected more than --entries {args.entries}")
    conversations = []
    for number in range(args.conversations):
        conversations.append(study.conversation(draws.choice(SEEDS)))
        print(f"\rconversation {number + 1} of {args.conversations}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    held, studied = conversations[: args.held_out], conversations[args.held_out:]
    with torch.no_grad():
        beginning = study.model(torch.tensor([study.context[: args.entries]]), use_cache=True).past_key_values
    cartridge = Cartridge(beginning, args.entries)

    def report(step):
        with torch.no_grad():
            mean = sum(loss_of(study, cartridge, one).item() for one in held) / len(held)
        print(f"step {step}: KL of {len(held)} conversations held out {mean:.4f} nats a token", flush=True)

    optimizer = torch.optim.Adam(cartridge.parameters(), lr=args.learning_rate)
    for step in range(args.steps):
        if step % 50 == 0:
            report(step)
        optimizer.zero_grad()
        for one in draws.sample(studied, min(args.batch, len(studied))):
            (loss_of(study, cartridge, one) / args.batch).backward()
        optimizer.step()
    report(args.steps)
    write_folder(cartridge.parts(), args.model, args.out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("train")
    one.add_argument("model"), one.add_argument("text"), one.add_argument("out")
    for name, value in (("entries", 64), ("conversations", 48), ("held-out", 8), ("question", 24), ("answer", 40),
                        ("steps", 200), ("batch", 4), ("seed", 1)):
        one.add_argument(f"--{name}", type=int, default=value)
    one.add_argument("--learning-rate", type=float, default=0.005)
    one.set_defaults(run=train)
    two = commands.add_parser("convert")
    two.add_argument("model"), two.add_argument("checkpoint"), two.add_argument("out")
    two.set_defaults(run=convert)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
