from __future__ import annotations

import math
import pickle
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macapp.messages import Message
from macapp.protocol import (
    PRESETS,
    FieldError,
    FieldInfo,
    StepsDone,
    TrainingConfig,
    fields,
    format_number,
)

NUMBERS = [info for info in fields() if info.kind != "choice"]
INFO = {info.name: info for info in fields()}


def test_the_preset_article_is_the_articles_run() -> None:
    config = PRESETS["article"]
    assert (config.batch_size, config.learning_rate, config.momentum) == (64, 0.01, 0.5)
    assert (config.epochs, config.optimizer, config.weight_decay) == (5, "sgd", 0.0)
    assert config == TrainingConfig()


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name: str) -> None:
    assert PRESETS[name].problems() == []


def test_every_field_has_a_title_a_help_and_a_unit() -> None:
    for info in fields():
        assert str(info.title)
        assert str(info.help).endswith(".")
        assert (info.unit is None) == (info.kind == "choice")
        if info.kind != "choice":
            assert (info.step is None) != (info.factor is None)


@pytest.mark.parametrize("info", NUMBERS, ids=lambda info: info.name)
def test_limits_belong_to_the_field_and_beyond_them_is_refused(info: FieldInfo) -> None:
    for limit in (info.minimum, info.maximum):
        assert info.check(limit) is None
        assert _with(info, limit).problems() == []
    for beyond in (_below(info), _above(info)):
        message = info.check(beyond)
        assert message is not None
        assert str(message) == (
            f"{info.title} must be between {format_number(info.minimum)} "
            f"and {format_number(info.maximum)}."
        )
        problems = _with(info, beyond).problems()
        assert [problem.field for problem in problems] == [info.name]


@pytest.mark.parametrize("info", NUMBERS, ids=lambda info: info.name)
@pytest.mark.parametrize(
    "text", ["", "abc", "nan", "inf", "-inf", "1e999", "0x10", "1 2", "１,２,３"]
)
def test_text_that_is_no_number_is_refused_with_a_sentence(info: FieldInfo, text: str) -> None:
    with pytest.raises(FieldError, match=rf"{info.title} must be a (whole )?number\."):
        info.parse(text)


@pytest.mark.parametrize("info", NUMBERS, ids=lambda info: info.name)
def test_limits_are_read_from_text(info: FieldInfo) -> None:
    for limit in (info.minimum, info.maximum):
        assert info.parse(f" {format_number(limit)} ") == limit
    for beyond in (_below(info), _above(info)):
        with pytest.raises(FieldError, match="must be between"):
            info.parse(repr(beyond))


def test_a_whole_number_is_wanted_for_epochs() -> None:
    with pytest.raises(FieldError, match="whole number"):
        INFO["epochs"].parse("1.5")
    assert INFO["epochs"].check(2.0) is not None
    assert INFO["epochs"].check(True) is not None


def test_a_decimal_comma_is_understood() -> None:
    assert INFO["learning_rate"].parse("0,05") == 0.05


def test_unknown_choices_are_refused() -> None:
    with pytest.raises(FieldError, match=r"Device must be one of: auto, mps, cuda, cpu\."):
        INFO["device"].parse("tpu")


@given(st.text())
def test_any_text_gives_a_value_within_the_limits_or_a_sentence(text: str) -> None:
    for info in fields():
        try:
            value = info.parse(text)
        except FieldError as error:
            sentence = str(error.message)
        else:
            sentence = "."
            assert info.check(value) is None
        assert sentence.endswith(".")


@given(
    st.sampled_from(NUMBERS),
    st.integers(min_value=-40, max_value=40),
    st.floats(min_value=0, max_value=1),
)
def test_arrows_stay_within_the_limits(info: FieldInfo, count: int, share: float) -> None:
    start = info.minimum + share * (info.maximum - info.minimum)
    if info.kind == "integer":
        start = int(start)
    assert info.check(info.stepped(start, count)) is None


def test_arrows_step_to_round_numbers() -> None:
    assert INFO["momentum"].stepped(0.5, 1) == 0.55
    assert INFO["learning_rate"].stepped(0.01, 1) == 0.02
    assert INFO["batch_size"].stepped(64, -1) == 32


@given(st.floats(min_value=1e-6, max_value=1e4))
def test_a_formatted_number_reads_back_as_itself(value: float) -> None:
    assert math.isclose(float(format_number(value)), value, rel_tol=1e-3, abs_tol=1e-10)


def test_a_config_survives_json_and_refuses_unknown_fields() -> None:
    config = TrainingConfig(epochs=3, learning_rate=0.1)
    assert msgspec.json.decode(msgspec.json.encode(config), type=TrainingConfig) == config
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"epoch": 3}', type=TrainingConfig)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"epochs": 0}', type=TrainingConfig)


def test_events_cross_a_pipe_unchanged() -> None:
    event = StepsDone(1, 2, 3, np.array([0.5, 0.25], np.float32), 1.5)
    copy = pickle.loads(pickle.dumps(event))
    assert (copy.job, copy.epoch, copy.first_step, copy.epoch_seconds) == (1, 2, 3, 1.5)
    np.testing.assert_array_equal(copy.losses, event.losses)
    assert copy.losses.dtype == np.float32


def test_a_message_is_translated_with_all_that_is_in_it() -> None:
    german = {"{title} fehlt": "{title} fehlt", "Epochs": "Epochen"}
    message = Message("{title} fehlt", {"title": Message("Epochs")})
    assert message.render(lambda text: german.get(text, text)) == "Epochen fehlt"
    assert str(message) == "Epochs fehlt"


def _with(info: FieldInfo, value: Any) -> TrainingConfig:
    return TrainingConfig(**{info.name: value})


def _below(info: FieldInfo) -> float:
    return info.minimum - 1 if info.kind == "integer" else math.nextafter(info.minimum, -1)


def _above(info: FieldInfo) -> float:
    return info.maximum + 1 if info.kind == "integer" else info.maximum * 1.001
