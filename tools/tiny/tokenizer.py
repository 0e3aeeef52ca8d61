# SPDX-License-Identifier: Apache-2.0
"""Trains tiny's byte-level BPE on the corpus and writes tokenizer.json and tokenizer_config.json.

    python tokenizer.py --out ../../models/tiny

The file has the structure of DeepSeek-V4's: three isolated regex splits, then ByteLevel; ids 0-2 are BOS, EOS and pad,
the chat tokens are the last ids. Digits are never merged, so every digit is one token and sums line up.
"""
import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from corpus import documents, encoder

VOCAB_SIZE = 2560
SPECIAL = [encoder.BOS_TOKEN, encoder.EOS_TOKEN, "<｜▁pad▁｜>"]
CHAT_TOKENS = [encoder.USER_TOKEN, encoder.ASSISTANT_TOKEN, encoder.THINK_START_TOKEN, encoder.THINK_END_TOKEN, encoder.DSML_TOKEN, encoder.LATEST_REMINDER_TOKEN]
IMAGE_TOKEN = "<｜image｜>"
# The published family's pre-tokenizer, so that one splitter serves tiny and the large models alike.
SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""".replace(r"\r", "\r").replace(r"\n", "\n"),
]
GENERAL_TEXT = """
The small words of every day: the, a, an, and, or, not, no, yes, but, if, then, when, where, who, what, why, how, this, that, these,
those, there, here, now, never, always, often, some, any, many, few, more, most, less, very, too, also, only, just, about, after, before, between,
because, through, under, over, into, from, with, without, for, of, to, in, on, at, by, up, down, out, off, again, once, all, both, each, other, such, own, same, so, than.
I you he she it we they me him her us them my your his its our their is are was were be been being have has had having do does did doing will
would shall should can could may might must let make made take took give gave go went come came see saw know knew think thought say said tell told
ask asked want wanted need needed like liked love loved find found keep kept leave left feel felt put bring brought begin began show showed hear heard play
run move live believe hold write wrote read sit stand lose pay meet include continue set learn change lead understand watch follow stop create speak
spend grow open walk win offer remember consider appear buy wait serve die send expect build stay fall cut reach kill remain suggest raise pass sell
require report decide pull python code function return print import class number string list file computer program server model token language
"""


def pre_tokenizer(splits: list[str]) -> pre_tokenizers.PreTokenizer:
    parts = [pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False) for pattern in splits]
    return pre_tokenizers.Sequence(parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def plain_text(document: str) -> str:
    for token in SPECIAL + CHAT_TOKENS:
        document = document.replace(token, "\n")
    return document


def train(count: int, seed: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer([r"\p{N}"] + SPLITS[1:])  # single digits while learning merges
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(CHAT_TOKENS) - 1,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    stream = documents(seed)
    texts = [plain_text(next(stream)) for _ in range(count)] + [GENERAL_TEXT] * 40
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizer(SPLITS)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    filler = VOCAB_SIZE - len(CHAT_TOKENS) - 1 - tokenizer.get_vocab_size()
    if filler > 0:
        raise SystemExit(f"the corpus gives {filler} merges too few for a vocabulary of {VOCAB_SIZE}")
    tokenizer.add_tokens([AddedToken(t, normalized=True, special=False) for t in CHAT_TOKENS])
    tokenizer.add_special_tokens([AddedToken(IMAGE_TOKEN, normalized=False, special=True)])
    return tokenizer


def write(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    token = lambda text: {"__type": "AddedToken", "content": text, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}  # noqa: E731
    config = {
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": token(SPECIAL[0]),
        "clean_up_tokenization_spaces": False,
        "eos_token": token(SPECIAL[1]),
        "model_max_length": 8192,
        "pad_token": token(SPECIAL[1]),
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=60000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = train(args.documents, args.seed)
    write(tokenizer, args.out)
    print(f"{tokenizer.get_vocab_size()} tokens; {tokenizer.encode('47 apples').tokens}")


if __name__ == "__main__":
    main()
