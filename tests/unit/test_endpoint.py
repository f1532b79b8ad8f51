"""How a model behind a server is named, what is refused, and what its answers are read as."""

from pathlib import Path
from typing import Any

import pytest

from elastic_core.engines.base import RequestFailed
from elastic_core.engines.endpoint import (
    Address,
    Endpoint,
    EndpointParameters,
    Served,
    api_key,
    is_endpoint,
    parse_address,
    parse_addresses,
)
from elastic_core.engines.http import completion_request, read_completion
from elastic_core.errors import UserError
from elastic_core.miniature.warm_start import BASE
from elastic_core.strategies import Completion, Finish, Generate, Sampling
from flows import presets
from flows.runtime.settings import Settings

HERE = "http://host:8000/v1#model"
SERVED = Served("vllm", "0.29.0", "/models/a", 512)
REQUEST = Generate((1, 2), 8, (7, 9), Sampling(0.8, 0.95))


def test_an_address_is_a_servers_and_a_models() -> None:
    assert parse_address(HERE) == Address("http://host:8000/v1", "model")
    assert parse_address("https://host/v1/#OWNER/NAME") == Address("https://host/v1", "OWNER/NAME")
    assert parse_address(f"openai+{HERE}") == Address("http://host:8000/v1", "model", chat=True)
    for text in (HERE, f"openai+{HERE}", "https://host/v1#OWNER/NAME"):
        assert is_endpoint(text) and str(parse_address(text)) == text
    assert not any(map(is_endpoint, ["OWNER/NAME", "models/http", "/models/a", "openai/gpt", "ftp://host#m"]))


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("http://host:8000/v1", "#"),
        ("http://host:8000/v1#", "#"),
        ("http:///v1#model", "host"),
        ("http://host:eighty/v1#model", "port"),
        ([], "empty"),
        ([HERE, HERE], "twice"),
        ([HERE, "http://other/v1#another"], "one model"),
        ([HERE, "OWNER/NAME"], "OWNER/NAME"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused(text: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_addresses(text)


@pytest.mark.parametrize("text", ["http://me:s3cret@host/v1#model", "http://host/v1?api_key=s3cret#model"])
def test_an_address_with_a_key_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match="key") as refused:
        parse_address(text)
    assert "s3cret" not in str(refused.value)


def test_a_key_is_of_one_model_and_openais_goes_to_openai_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    assert api_key("mine", parse_address(HERE)) is None
    assert api_key("mine", parse_address("https://api.openai.com.evil.example/v1#m")) is None
    assert api_key("mine", parse_address("https://api.openai.com/v1#m")) == "theirs"
    monkeypatch.setenv("ELASTIC_API_KEY_MY_MODEL_1", "ours")
    assert api_key("my-model@1", parse_address(HERE)) == "ours"


def settings(**changes: Any) -> Settings:
    given = {"sweep.models": ["served"], "sweep.checkpoints.served": HERE, "sweep.tokenizers.served": str(BASE)}
    return presets.resolve("embedded", given | {"report.pairs": []} | changes)


def test_settings_tell_servers_from_directories() -> None:
    both = settings(**{"sweep.checkpoints.other": "OWNER/NAME", "sweep.models": ["served", "other"]}).sweep
    assert both.endpoints == {"served": (parse_address(HERE),)} and both.directories == {"other": "OWNER/NAME"}
    replicas = [HERE, "http://other:8000/v1#model"]
    assert len(settings(**{"sweep.checkpoints.served": replicas}).sweep.endpoints["served"]) == 2


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"sweep.tokenizers": {}}, "tokenizers.served"),
        ({"sweep.tokenizers.other": "OWNER/NAME"}, "tokenizers.other"),
        ({"sweep.checkpoints.served": "http://host:8000/v1"}, 'checkpoints.served: "http://host:8000/v1"'),
        ({"sweep.models": ["served>base"]}, "served>base"),
        ({"endpoint.max_requests": 0}, "--set endpoint.max_requests: .* 1"),
    ],
)
def test_settings_that_cannot_be_measured_are_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        settings(**changes)


def endpoint(tmp_path: Path, served: Served = SERVED, *addresses: str) -> Endpoint:
    (tmp_path / "tokenizer.json").write_text("{}")
    found = parse_addresses(list(addresses) or HERE)
    return Endpoint("served", found, served, tmp_path, EndpointParameters())


def test_an_endpoint_is_told_apart_by_its_server_and_tokenizer_and_not_by_its_replicas(tmp_path: Path) -> None:
    one = endpoint(tmp_path)
    before = one.fingerprint
    assert endpoint(tmp_path, SERVED, HERE, "http://other/v1#model").fingerprint == before
    for changed in (SERVED._replace(version="0.30.0"), SERVED._replace(root="/models/b")):
        assert endpoint(tmp_path, changed).fingerprint != before
    assert endpoint(tmp_path, SERVED, "http://other/v1#model").fingerprint != before
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 3}')
    assert one.fingerprint != before
    assert one.description["weights"] == "not hashed: behind a server"


def test_a_request_leaves_nothing_to_the_servers_defaults() -> None:
    body = completion_request("m", REQUEST, 5, 11)
    given = {"prompt": [1, 2], "max_tokens": 5, "seed": 11, "stop_token_ids": [7, 9], "ignore_eos": True}
    neutral = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "temperature": 0.8, "top_p": 0.95}
    assert body.items() >= (given | neutral | {"return_token_ids": True}).items()


def answer(**choice: Any) -> dict[str, Any]:
    return {"choices": [{"token_ids": [4, 5], "finish_reason": "length"} | choice]}


def test_a_completion_ends_with_the_stop_id_whether_the_server_leaves_it_in_or_not() -> None:
    assert read_completion(answer(), REQUEST) == Completion((4, 5), Finish.LENGTH)
    kept = answer(token_ids=[4, 9], finish_reason="stop", stop_reason=9)
    taken = answer(token_ids=[4], finish_reason="stop", matched_stop=9)
    assert read_completion(kept, REQUEST) == read_completion(taken, REQUEST) == Completion((4, 9), Finish.STOP)


@pytest.mark.parametrize(
    "given, sentence",
    [
        (answer(finish_reason="stop", stop_reason=5), "stop at 5"),
        (answer(finish_reason="abort"), "abort"),
        *((broken, "no token ids") for broken in (answer(token_ids=None), {"choices": []}, {})),
    ],
)
def test_an_answer_that_is_not_what_was_requested_fails(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestFailed, match=sentence):
        read_completion(given, REQUEST)
