"""What is wrong is said in OpenAI's shape, and the server lives."""
from __future__ import annotations

import time
from typing import Any

import openai
import pytest

from conftest import http, PATIENCE_S, Server

HI = [{"role": "user", "content": "hi"}]


def raw(server: Server, body: bytes, path: str = "/v1/chat/completions") -> dict[str, Any]:
    response = http.post(server.url + path, content=body, headers={"Content-Type": "application/json"})
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return {"status": response.status_code, **error}


def test_unknown_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-5", messages=HI)  # type: ignore[arg-type]
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-5", prompt="x")
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


@pytest.mark.parametrize("options, param", [
    ({"n": 129}, "n"),
    ({"n": 2, "extra_body": {"best_of": 3}}, "best_of"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": {"1000000": 1}}, "logit_bias"),
    ({"frequency_penalty": 3}, "frequency_penalty"),
    ({"presence_penalty": -3}, "presence_penalty"),
    ({"tool_choice": "required", "tools": []}, "tool_choice"),
    ({"temperature": 3}, "temperature"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"extra_body": {"min_p": 1.5}}, "min_p"),
    ({"extra_body": {"not_a_field": 1}}, "not_a_field"),
])
def test_unsupported_fields_are_named(client: openai.OpenAI, model: str, options: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=HI, **options)  # type: ignore[arg-type]
    assert caught.value.param == param
    assert param in caught.value.message


def test_fields_without_effect_are_accepted(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=HI, max_tokens=2, user="u", metadata={"a": "b"}, store=False, n=1, frequency_penalty=0,  # type: ignore[arg-type]
        presence_penalty=0, logit_bias={}, response_format={"type": "text"}, service_tier="auto")
    assert answer.choices


def test_json_faults_have_a_place(server: Server) -> None:
    for body, place in [
        (b'{"messages": [}', "byte 14"),
        (b"", "byte 0"),
        (b"[1, 2", "byte"),
        (b'{"messages":[{"role":"user","content":"\\ud83d"}]}', "byte 39"),
        (b'{"messages":[{"role":"user","content":"\xff"}]}', "byte 39"),
        (b'{"messages":[{"role":"user","content":"\xed\xa0\xbd"}]}', "byte 39"),
    ]:
        error = raw(server, body)
        assert error["status"] == 400
        assert place in error["message"], error


def test_embedded_nul_is_text(server: Server, model: str) -> None:
    body = {"model": model, "messages": [{"role": "user", "content": "a\x00b"}], "max_tokens": 2}
    assert server.post("/v1/chat/completions", body).status_code == 200


def test_deep_bodies_are_refused_fast(server: Server) -> None:
    begin = time.monotonic()
    for body in (b"[" * 100_000, b'{"a":' * 100_000, b'{"messages":[],"tools":' + b"[" * 100_000 + b"]" * 100_000 + b"}"):
        assert raw(server, body)["status"] == 400
    assert time.monotonic() - begin < 20


def test_prompt_longer_than_the_context(start: Any) -> None:
    server = start("--max-model-len", "64").wait_ready()
    error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 200}]})
    assert error.status_code == 400
    assert error.json()["error"]["code"] == "context_length_exceeded"
    message = error.json()["error"]["message"]
    count = server.post("/tokenize", {"messages": [{"role": "user", "content": "word " * 200}]}).json()["count"]
    assert "64" in message and str(count) in message
    error = server.post("/v1/completions", {"prompt": "x", "max_tokens": 64})
    assert error.status_code == 400 and "64" in error.json()["error"]["message"]
    full = server.post("/v1/completions", {"prompt": "x", "max_tokens": 63, "ignore_eos": True})
    assert full.status_code == 200 and full.json()["usage"]["completion_tokens"] == 63


def test_body_over_the_limit(server: Server) -> None:
    response = http.post(server.url + "/v1/chat/completions", content=b" " * (27 << 20), timeout=PATIENCE_S,
                          headers={"Content-Type": "application/json"})
    assert response.status_code == 413


def test_wrong_routes_and_methods(server: Server) -> None:
    assert http.get(server.url + "/v2/nothing").status_code == 404
    response = http.get(server.url + "/v1/chat/completions")
    assert response.status_code == 405 and "POST" in response.headers["allow"]
    assert http.post(server.url + "/v1/chat/completions", content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    assert http.options(server.url + "/v1/chat/completions").status_code == 204
    assert http.head(server.url + "/health").status_code == 200


def test_contradicting_thinking_switches(server: Server, model: str) -> None:
    body = {"model": model, "messages": HI}
    for extra in ({"reasoning_effort": "enormous"}, {"reasoning_effort": "none", "thinking": {"type": "enabled"}},
                  {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"enable_thinking": False}}):
        response = server.post("/v1/chat/completions", body | extra)
        assert response.status_code == 400, extra
    message = server.post("/v1/chat/completions", body | {"reasoning_effort": "enormous"}).json()["error"]["message"]
    assert "high" in message and "max" in message


def test_the_server_lives(server: Server, client: openai.OpenAI, model: str) -> None:
    """Last in this file: after all of the above."""
    assert client.chat.completions.create(model=model, messages=HI, max_tokens=3).choices  # type: ignore[arg-type]
    assert http.get(server.url + "/live").status_code == 200
