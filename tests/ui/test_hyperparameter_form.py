from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox

from macapp.protocol import PRESETS, FieldInfo, TrainingConfig, fields, format_number
from macapp.ui.hyperparameter_form import HyperparameterForm, help_text
from macapp.ui.number_field import NumberField

if TYPE_CHECKING:
    from pytestqt.qtbot import QtBot

NUMBERS = [info for info in fields() if info.kind != "choice"]


@pytest.fixture
def form(qtbot: QtBot) -> HyperparameterForm:
    form = HyperparameterForm()
    qtbot.addWidget(form)
    form.show()
    return form


def editor(form: HyperparameterForm, name: str) -> NumberField:
    found = form._fields[name].editor
    assert isinstance(found, NumberField)
    return found


def type_into(form: HyperparameterForm, name: str, text: str, qtbot: QtBot) -> None:
    editor(form, name).selectAll()
    qtbot.keyClicks(editor(form, name), text)


def test_it_shows_every_field_and_starts_with_the_article(form: HyperparameterForm) -> None:
    assert list(form._fields) == [info.name for info in fields()]
    assert form.config() == TrainingConfig()
    assert form._preset.currentData() == "article"


@pytest.mark.parametrize("info", NUMBERS, ids=lambda info: info.name)
def test_beyond_a_limit_nothing_can_start_and_the_field_says_why(
    form: HyperparameterForm, qtbot: QtBot, info: FieldInfo
) -> None:
    error = form._fields[info.name].error
    for text in ("-1", "99999999999", "nan", "abc", "inf", "1e-300" if info.minimum else "-0.1"):
        with qtbot.waitSignal(form.changed, check_params_cb=lambda config: config is None):
            type_into(form, info.name, text, qtbot)
        assert form.config() is None
        assert error.isVisible()
        assert str(info.title) in error.text()
        assert editor(form, info.name).text() == text  # not corrected behind one's back
    for limit in (info.minimum, info.maximum):
        type_into(form, info.name, format_number(limit), qtbot)
        config = form.config()
        assert config is not None
        assert getattr(config, info.name) == limit
        assert not error.isVisible()


def test_a_preset_fills_the_form_but_not_device_and_seed(
    form: HyperparameterForm, qtbot: QtBot
) -> None:
    type_into(form, "seed", "7", qtbot)
    assert form._preset.currentData() == "article"  # a seed makes no other preset
    form._preset.setCurrentIndex(form._preset.findData("faster"))
    config = form.config()
    assert config is not None
    assert config.batch_size == PRESETS["faster"].batch_size
    assert config.seed == 7


def test_a_change_makes_it_custom_and_reset_takes_it_back(
    form: HyperparameterForm, qtbot: QtBot
) -> None:
    type_into(form, "epochs", "9", qtbot)
    assert form._preset.currentData() == "custom"
    reset = form._fields["epochs"].reset
    assert reset.isVisible()
    assert "5" in reset.toolTip()
    qtbot.mouseClick(reset, Qt.MouseButton.LeftButton)
    assert form.config() == TrainingConfig()
    assert not reset.isVisible()
    assert form._preset.currentData() == "article"


def test_reset_repairs_a_text_that_is_no_number(form: HyperparameterForm, qtbot: QtBot) -> None:
    type_into(form, "learning_rate", "fast", qtbot)
    qtbot.mouseClick(form._fields["learning_rate"].reset, Qt.MouseButton.LeftButton)
    assert form.config() == TrainingConfig()


def test_arrow_keys_step(form: HyperparameterForm, qtbot: QtBot) -> None:
    qtbot.keyClick(editor(form, "epochs"), Qt.Key.Key_Up)
    qtbot.keyClick(editor(form, "batch_size"), Qt.Key.Key_Down)
    config = form.config()
    assert config is not None
    assert (config.epochs, config.batch_size) == (6, 32)
    type_into(form, "epochs", "many", qtbot)
    qtbot.keyClick(editor(form, "epochs"), Qt.Key.Key_Up)  # from the default
    assert form.config() is not None


def test_momentum_is_for_sgd_only(form: HyperparameterForm) -> None:
    optimizer = form._fields["optimizer"].editor
    assert isinstance(optimizer, QComboBox)
    assert editor(form, "momentum").isEnabled()
    optimizer.setCurrentIndex(optimizer.findData("adam"))
    assert not editor(form, "momentum").isEnabled()


def test_the_field_with_the_keyboard_is_explained(form: HyperparameterForm, qtbot: QtBot) -> None:
    form.activateWindow()
    qtbot.waitUntil(form.isActiveWindow)
    editor(form, "learning_rate").setFocus()
    text = form._help.text()
    assert "The size of each step" in text
    assert "From 0.000001 to 10." in text


def test_every_editor_is_named_for_screen_readers(form: HyperparameterForm) -> None:
    for name, field in form._fields.items():
        assert field.editor.accessibleName(), name
        assert field.editor.accessibleDescription() == help_text(field.info)


@given(text=st.text(max_size=20))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_is_a_number_or_a_sentence(form: HyperparameterForm, text: str) -> None:
    for info in NUMBERS:
        field = form._fields[info.name]
        editor(form, info.name).lineEdit().setText(text)
        assert (field.problem() is None) == (field.error.text() == "")
        editor(form, info.name).stepBy(1)  # never raises
