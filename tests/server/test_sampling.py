"""Penalties, bias and cuts, by way of the real client."""
from __future__ import annotations

from typing import Any

import openai

from conftest import Server

PROMPT = "one two one two one two one"


def complete(client: openai.OpenAI, model: str, **options: Any) -> list[int]:
    """The ids of twelve generated tokens."""
    extra = {"ignore_eos": True, "return_tokens_as_token_ids": True, **options.pop("extra", {})}
    answer = client.completions.create(
        model=model, prompt=PROMPT, max_tokens=12, logprobs=0, extra_body=extra, **{"temperature": 0, **options})
    lists = answer.choices[0].logprobs
    assert lists and lists.tokens
    return [int(token.removeprefix("token_id:")) for token in lists.tokens]


def test_cuts_that_leave_one_token_are_greedy(client: openai.OpenAI, model: str) -> None:
    greedy = complete(client, model)
    hot: dict[str, Any] = {"temperature": 2, "seed": 5}
    assert complete(client, model, **hot) != greedy
    for extra in ({"top_k": 1}, {"min_p": 1}, {"top_k": 1, "min_p": 0.5}):
        assert complete(client, model, **hot, extra=extra) == greedy
    assert complete(client, model, **hot, extra={"top_k": -1, "min_p": 0}) == complete(client, model, **hot)


def test_logit_bias_bans_and_forces(client: openai.OpenAI, model: str) -> None:
    greedy = complete(client, model)
    banned = complete(client, model, logit_bias={str(greedy[0]): -100})
    assert greedy[0] not in banned
    assert complete(client, model, logit_bias={"65": 100}) == [65] * 12


def test_penalties_keep_tokens_from_returning(server: Server, client: openai.OpenAI, model: str) -> None:
    # Only these two can be generated, and left alone one of them is, all the time.
    options: dict[str, Any] = {"logit_bias": {"65": 90, "66": 90}}
    alone = complete(client, model, **options)
    assert set(alone) <= {65, 66}
    most = max(alone.count(65), alone.count(66))
    for penalty in ("presence_penalty", "frequency_penalty"):
        punished = complete(client, model, **options, **{penalty: 2})
        assert set(punished) == {65, 66}
        assert max(punished.count(65), punished.count(66)) < most, penalty
    prompt_ids = set(server.post("/tokenize", {"prompt": PROMPT}).json()["tokens"])
    repeated = complete(client, model, extra={"repetition_penalty": 10})
    assert not prompt_ids & set(repeated) and len(set(repeated)) == len(repeated)


def test_chat_takes_the_same_fields_and_repeats_itself(client: openai.OpenAI, model: str) -> None:
    def chat() -> str | None:
        return client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Tell me something."}], max_tokens=24, temperature=1.2, seed=9,
            top_p=0.95, presence_penalty=0.5, frequency_penalty=0.3, logit_bias={"65": -100, "70": 1.5},
            extra_body={"top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1}).choices[0].message.content

    assert chat() == chat()
