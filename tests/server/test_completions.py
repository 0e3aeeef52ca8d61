"""Text completions, tokens and log-probabilities."""
from __future__ import annotations

import math
from typing import Any

import openai
import pytest

from conftest import Server

PROMPT = "The sun rises in the naïve 深度 👩‍👩‍👧"


def ids_of(server: Server, text: str) -> list[int]:
    return server.post("/tokenize", {"prompt": text}).json()["tokens"]


def test_text_and_ids_are_one(server: Server, client: openai.OpenAI, model: str) -> None:
    text = client.completions.create(model=model, prompt=PROMPT, max_tokens=12)
    ids = client.completions.create(model=model, prompt=ids_of(server, PROMPT), max_tokens=12)
    nested = client.completions.create(model=model, prompt=[ids_of(server, PROMPT)], max_tokens=12)
    assert text.choices[0].text == ids.choices[0].text == nested.choices[0].text
    assert text.usage and text.usage.prompt_tokens == len(ids_of(server, PROMPT))


def test_stream_equals_whole(client: openai.OpenAI, model: str) -> None:
    for seed in range(4):
        options: dict[str, Any] = {
            "model": model, "prompt": PROMPT, "max_tokens": 40, "temperature": 1.0, "seed": seed, "echo": bool(seed % 2)}
        whole = client.completions.create(**options)
        stream = client.completions.create(**options, stream=True, stream_options={"include_usage": True})
        chunks = list(stream)
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
        assert chunks[-1].usage == whole.usage
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.choices[0].finish_reason


def test_echo_scores_the_prompt(server: Server, client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=PROMPT, echo=True, logprobs=3, max_tokens=4, extra_body={"ignore_eos": True})
    choice = answer.choices[0]
    assert choice.text.startswith(PROMPT)
    lists = choice.logprobs
    assert lists and lists.tokens and lists.token_logprobs and lists.top_logprobs and lists.text_offset
    count = len(ids_of(server, PROMPT)) + 4
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) == count
    assert lists.token_logprobs[0] is None and lists.top_logprobs[0] is None
    for token, logprob, top in list(zip(lists.tokens, lists.token_logprobs, lists.top_logprobs))[1:]:
        assert logprob <= 0
        assert math.isclose(top[token], logprob, abs_tol=1e-6)
        assert 3 <= len(top) <= 4
    assert lists.text_offset == sorted(lists.text_offset)
    # Text of plain tokens stands where the offsets say; special tokens are in the lists and not in the text.
    for token, begin in zip(lists.tokens, lists.text_offset):
        if not token.startswith("bytes:") and token != "<｜end▁of▁sentence｜>":
            assert choice.text[begin:begin + len(token)] == token


def test_max_tokens_zero(client: openai.OpenAI, model: str) -> None:
    scored = client.completions.create(model=model, prompt=PROMPT, echo=True, logprobs=0, max_tokens=0)
    assert scored.choices[0].text == PROMPT
    assert scored.choices[0].finish_reason == "length"
    assert scored.usage and scored.usage.completion_tokens == 0
    assert client.completions.create(model=model, prompt=PROMPT, max_tokens=0).choices[0].text == ""


def test_prompt_scores_equal_generation_scores(client: openai.OpenAI, model: str) -> None:
    """What a token scored when it was generated, it scores again as part of a prompt."""
    options: dict[str, Any] = {"model": model, "logprobs": 2, "extra_body": {"return_tokens_as_token_ids": True}}
    made = client.completions.create(prompt=PROMPT, echo=True, max_tokens=10, **options).choices[0].logprobs
    assert made and made.tokens and made.token_logprobs
    ids = [int(token.removeprefix("token_id:")) for token in made.tokens]
    again = client.completions.create(prompt=ids, echo=True, max_tokens=0, **options).choices[0].logprobs
    assert again and again.token_logprobs
    assert again.tokens == made.tokens
    for first, second in list(zip(made.token_logprobs, again.token_logprobs))[1:]:
        assert first == second


def test_tokens_as_ids(server: Server, client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt=PROMPT, echo=True, logprobs=20, max_tokens=3,
        extra_body={"return_tokens_as_token_ids": True, "ignore_eos": True})
    lists = answer.choices[0].logprobs
    assert lists and lists.tokens and lists.top_logprobs
    assert [f"token_id:{one}" for one in ids_of(server, PROMPT)] == lists.tokens[:-3]
    for token, top in list(zip(lists.tokens, lists.top_logprobs))[1:]:
        assert token in top
        assert 20 <= len(top) <= 21
        assert all(name.startswith("token_id:") for name in top)


def test_ignore_eos(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt="<｜User｜>What is 1 plus 1?<｜Assistant｜></think>", max_tokens=50,
        extra_body={"ignore_eos": True})
    assert answer.usage and answer.usage.completion_tokens == 50
    assert answer.choices[0].finish_reason == "length"


def test_several_prompts(client: openai.OpenAI, model: str) -> None:
    prompts = ["One", "Two three", "Four five six"]
    answer = client.completions.create(model=model, prompt=prompts, max_tokens=8)
    alone = [client.completions.create(model=model, prompt=prompt, max_tokens=8).choices[0].text for prompt in prompts]
    assert [choice.text for choice in answer.choices] == alone
    assert [choice.index for choice in answer.choices] == [0, 1, 2]


def test_n_choices_of_each_prompt(server: Server, client: openai.OpenAI, model: str) -> None:
    prompts = ["One", "Two three"]
    options: dict[str, Any] = {"model": model, "max_tokens": 12, "temperature": 1.5, "seed": 4, "logprobs": 1}
    alone = [client.completions.create(prompt=prompt, n=3, **options) for prompt in prompts]
    both = client.completions.create(prompt=prompts, n=3, best_of=3, **options)
    assert [choice.index for choice in both.choices] == list(range(6))
    assert [choice.text for choice in both.choices] == [choice.text for one in alone for choice in one.choices]
    assert [choice.logprobs for choice in both.choices] == [choice.logprobs for one in alone for choice in one.choices]
    for one, prompt in zip(alone, prompts):
        assert one.choices[0] == client.completions.create(prompt=prompt, **options).choices[0]
        assert one.usage and one.usage.prompt_tokens == len(ids_of(server, prompt))
    assert both.usage and both.usage.prompt_tokens == sum(len(ids_of(server, prompt)) for prompt in prompts)
    assert both.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone if one.usage)
    texts = [""] * 6
    chunks = list(client.completions.create(prompt=prompts, n=3, stream=True, stream_options={"include_usage": True}, **options))
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in both.choices]
    assert chunks[-1].usage and chunks[-1].usage.completion_tokens == both.usage.completion_tokens
    assert len(set(texts)) > 2
    greedy = client.completions.create(model=model, prompt=PROMPT, n=128, max_tokens=3, temperature=0)
    assert len(greedy.choices) == 128 and len({choice.text for choice in greedy.choices}) == 1
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=prompts, n=65)
    assert caught.value.param == "n"


@pytest.mark.parametrize("text", ["plain", PROMPT, "a\x00b", " \n\t ", "<｜User｜>"])
def test_tokenize_and_back(server: Server, text: str) -> None:
    answer = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
    assert answer["count"] == len(answer["tokens"]) == len(answer["token_strs"])
    assert server.post("/detokenize", {"tokens": answer["tokens"]}).json()["prompt"] == text


def test_bos_only_when_asked_for(server: Server) -> None:
    plain = server.post("/tokenize", {"prompt": "x"}).json()["tokens"]
    with_bos = server.post("/tokenize", {"prompt": "x", "add_special_tokens": True}).json()["tokens"]
    assert with_bos == [0, *plain]
