"""Many clients at once: the same answers as alone, and nothing left behind when they leave."""
from __future__ import annotations

import concurrent.futures
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import openai

from conftest import Server, eventually, http

QUESTIONS = [f"What is {a} plus {b}?" for a, b in ((3, 4), (12, 7), (30, 41), (8, 8), (25, 17), (60, 2))] + [
    "List three colours.", "Say hello as JSON."]


def test_answers_do_not_depend_on_company(client: openai.OpenAI, model: str) -> None:
    def ask(index: int) -> str:
        answer = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": QUESTIONS[index % len(QUESTIONS)]}], max_tokens=40)
        return answer.choices[0].message.content or ""

    alone = [ask(index) for index in range(len(QUESTIONS))]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(32)))
    assert together == [alone[index % len(QUESTIONS)] for index in range(32)]


def raw_post(server: Server, body: bytes) -> socket.socket:
    parts = urlsplit(server.url)
    connection = socket.create_connection((parts.hostname, parts.port))
    connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return connection


def test_clients_that_leave(server: Server, model: str) -> None:
    cancelled = server.metric("nibble:requests_cancelled_total")
    for stream in (b"true", b"false"):
        body = (b'{"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,"temperature":1,"max_tokens":8000,"stream":'
                + stream + b"}")
        connections = [raw_post(server, body) for _ in range(6)]
        assert eventually(lambda: server.metric("vllm:num_requests_running") >= 1)
        assert eventually(lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 6)
        for connection in connections:
            connection.close()
        assert eventually(lambda: server.metric("vllm:num_requests_running") == 0)
        assert eventually(lambda: server.metric("vllm:num_requests_waiting") == 0)
    assert server.metric("nibble:requests_cancelled_total") == cancelled + 12


def test_clients_that_leave_several_choices(server: Server, model: str) -> None:
    cancelled = server.metric("nibble:requests_cancelled_total")
    for stream in (b"true", b"false"):
        for leave in (socket.socket.close, lambda connection: connection.shutdown(socket.SHUT_WR)):
            # 12 generations: more than run together, so some of them wait.
            body = (b'{"messages":[{"role":"user","content":"hi"}],"ignore_eos":true,"temperature":1,"max_tokens":8000,"n":4,'
                    b'"stream":' + stream + b"}")
            connections = [raw_post(server, body) for _ in range(3)]
            assert eventually(lambda: server.metric("vllm:num_requests_running") >= 1)
            assert eventually(
                lambda: server.metric("vllm:num_requests_running") + server.metric("vllm:num_requests_waiting") == 12)
            for connection in connections:
                leave(connection)
            assert eventually(lambda: server.metric("vllm:num_requests_running") == 0)
            assert eventually(lambda: server.metric("vllm:num_requests_waiting") == 0)
            for connection in connections:
                connection.close()
    assert server.metric("nibble:requests_cancelled_total") == cancelled + 4 * 12


def test_choices_are_accepted_or_refused_together(start: Callable[..., Server]) -> None:
    server = start("--max-num-seqs", "1", "--max-queue", "4").wait_ready()
    body = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True, "max_tokens": 8000, "n": 2, "stream": True}
    with http.stream("POST", server.url + "/v1/chat/completions", json=body) as stream:
        assert stream.status_code == 200
        assert eventually(lambda: server.metric("vllm:num_requests_waiting") == 1)
        refused = server.post("/v1/chat/completions", body | {"n": 4})
        assert refused.status_code == 429 and refused.headers["retry-after"]
        # These would be refused however often one asks.
        too_many = server.post("/v1/chat/completions", body | {"n": 5})
        assert too_many.status_code == 400 and "4" in too_many.json()["error"]["message"]
        assert server.metric("vllm:num_requests_waiting") == 1
        with http.stream("POST", server.url + "/v1/chat/completions", json=body | {"n": 3}) as fits:
            assert fits.status_code == 200
            assert eventually(lambda: server.metric("vllm:num_requests_waiting") == 4)
    assert eventually(lambda: server.metric("vllm:num_requests_waiting") + server.metric("vllm:num_requests_running") == 0)


def test_metrics(server: Server, client: openai.OpenAI, model: str) -> None:
    names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
             "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:time_to_first_token_seconds_count",
             "vllm:inter_token_latency_seconds_count")
    before: dict[str, Any] = {name: server.metric(name) for name in names}
    answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "What is 2 plus 2?"}])
    assert answer.usage
    assert eventually(lambda: server.metric("vllm:num_requests_running") == 0)
    assert server.metric("vllm:prompt_tokens_total") == before["vllm:prompt_tokens_total"] + answer.usage.prompt_tokens
    made = server.metric("vllm:generation_tokens_total") - before["vllm:generation_tokens_total"]
    assert made >= answer.usage.completion_tokens
    assert server.metric("vllm:time_to_first_token_seconds_count") == before["vllm:time_to_first_token_seconds_count"] + 1
    assert 0 <= server.metric("vllm:kv_cache_usage_perc") <= 1
