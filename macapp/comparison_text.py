"""What the result of a comparison says: a sentence, a table, a paragraph for a paper, a CSV."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from macapp.messages import QT_TRANSLATE_NOOP, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from macapp.comparisons import ComparisonResult, ContenderResult, SpeedUp
    from macapp.messages import Value

# The article whose run is the preset "Article": its table, and what it leaves open.
REFERENCE = {"cpu": 45.0, "mps": 12.0}
"""Seconds an epoch, about, on an M1 Max."""
REFERENCE_TEXT = QT_TRANSLATE_NOOP(
    "Message",
    "For reference, the article: M1 Max, CPU about 45 s and MPS about 12 s an epoch, 3.75 times as "
    "fast. It does not say how often it was measured, with which PyTorch and macOS, on mains or "
    "battery, with how many threads, nor whether the first epoch is in it.",
)


def contender(name: str) -> Message:
    """Return a contender's name in words; ``name`` is as on the command line."""
    device, _, threads = name.partition(":")
    if device == "cpu" and threads == "1":
        return Message(QT_TRANSLATE_NOOP("Message", "one CPU core"))
    if threads:
        text = QT_TRANSLATE_NOOP("Message", "{device} with {threads} CPU threads")
        return Message(text, {"device": contender(device), "threads": threads})
    texts = {
        "cpu": QT_TRANSLATE_NOOP("Message", "the CPU"),
        "mps": QT_TRANSLATE_NOOP("Message", "Metal"),
        "cuda": QT_TRANSLATE_NOOP("Message", "CUDA"),
    }
    return Message(texts.get(device, name))


def headline(found: SpeedUp) -> Message:
    """Return the answer in one sentence."""
    values: dict[str, Value] = {
        "name": contender(found.name),
        "reference": contender(found.reference),
        "value": ratio(found.value),
        "low": ratio(found.low),
        "high": ratio(found.high),
    }
    if found.verdict == "no_difference":
        text = QT_TRANSLATE_NOOP(
            "Message",
            "No clear difference between {name} and {reference}: {value} times as fast (95 % "
            "interval {low} to {high}).",
        )
    elif found.verdict == "faster":
        text = QT_TRANSLATE_NOOP(
            "Message",
            "Training with {name} is {value} times as fast as with {reference} (95 % interval "
            "{low} to {high}).",
        )
    else:
        text = QT_TRANSLATE_NOOP(
            "Message",
            "Training with {name} is slower than with {reference}: {value} times its speed (95 % "
            "interval {low} to {high}).",
        )
    return Message(text, values)


def ratio(value: float) -> str:
    """Return a ratio with as many digits as it deserves: 0.87, 1.04, 3.41, 12.3."""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}"


def parity(result: ComparisonResult) -> Message:
    """Return whether both compute the same, in one sentence."""
    found = result.parity
    if found.verdict == "unknown":
        text = QT_TRANSLATE_NOOP("Message", "Whether both compute the same is not known.")
        return Message(text)
    names = {"name": contender(found.name), "reference": contender(found.reference)}
    if found.verdict == "same":
        text = QT_TRANSLATE_NOOP(
            "Message", "The results of {name} and {reference} agree within float32 rounding."
        )
        return Message(text, dict(names))
    text = QT_TRANSLATE_NOOP(
        "Message", "The results differ: do not trust {name} for this network. {reason}"
    )
    return Message(text, {**names, "reason": found.reason or Message("")})


def summary(result: ComparisonResult) -> str:
    """Return all that matters, as lines for a terminal."""
    lines = []
    if result.speed_up is not None:
        lines += [str(headline(found)) for found in result.speed_ups]
    else:
        lines.append("The comparison has no answer.")
    lines.append(str(parity(result)))
    for measured in result.contenders:
        lines.append(_line(measured))
    for point in result.sweep:
        speeds = [
            f"{one.name} {speed:,.0f}" if speed is not None else f"{one.name} does not fit"
            for one, speed in zip(result.contenders, point.images_per_second, strict=False)
        ]
        lines.append(f"batch {point.batch_size}: {', '.join(speeds)} images/s")
    if result.crossing_batch_size is not None:
        last = contender(result.contenders[-1].name)
        lines.append(f"From batch size {result.crossing_batch_size:.0f} on {last} is faster.")
    lines += [f"Note: {note.message}" for note in result.notes]
    return "\n".join(lines)


def _line(measured: ContenderResult) -> str:
    if measured.epoch_seconds is None:
        return f"{measured.name}: {measured.failure or 'not measured'}"
    epoch = measured.epoch_seconds
    line = (
        f"{measured.name}: {epoch.median:.2f} s an epoch of training (quartiles {epoch.low:.2f} "
        f"to {epoch.high:.2f}), {measured.images_per_second:,.0f} images/s, "
        f"{len(measured.block_seconds)} blocks of {measured.block_steps} steps"
    )
    if measured.whole_epoch_seconds is not None:
        line += f", {measured.whole_epoch_seconds:.2f} s with the test pass"
    if measured.first_step_seconds is not None:
        line += f", first step {measured.first_step_seconds:.3f} s"
    if measured.failure is not None:
        line += f"; then: {measured.failure}"
    return line


COLUMNS = (
    "machine",
    "contender",
    "threads",
    "epoch_s",
    "epoch_low_s",
    "epoch_high_s",
    "images_per_s",
    "blocks",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "parity",
)


def rows(results: Sequence[ComparisonResult]) -> list[list[str]]:
    """Return the figures of one or more results, a row a contender; see `COLUMNS`."""
    found = []
    for result in results:
        computer = result.machine.processor or result.machine.system or "?"
        speed_ups = {one.name: one for one in result.speed_ups}
        parities = {one.name: one.verdict for one in result.parities}
        for measured in result.contenders:
            epoch, faster = measured.epoch_seconds, speed_ups.get(measured.name)
            times = (epoch.median, epoch.low, epoch.high) if epoch is not None else ()
            ratios = (faster.value, faster.low, faster.high) if faster is not None else ()
            found.append(
                [
                    computer,
                    measured.name,
                    str(measured.threads),
                    *([f"{value:.4g}" for value in times] or ["", "", ""]),
                    f"{measured.images_per_second:.0f}" if epoch is not None else "",
                    str(len(measured.block_seconds)),
                    *([f"{value:.3f}" for value in ratios] or ["", "", ""]),
                    parities.get(measured.name, ""),
                ]
            )
    return found


def table(results: Sequence[ComparisonResult]) -> str:
    """Return the figures side by side, for a terminal."""
    lines = [list(COLUMNS), *rows(results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def to_csv(results: Sequence[ComparisonResult]) -> str:
    """Return the figures as CSV, with a line of titles."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(rows(results))
    return text.getvalue()


def methods_paragraph(result: ComparisonResult, language: str) -> str:
    """Return three sentences for a paper, in English or, for ``language`` "zh", in Chinese.

    Raises:
        ValueError: nothing was measured that could be cited.
    """
    found = result.speed_up
    measured = {one.name: one for one in result.contenders}
    if found is None:
        raise ValueError("no speed-up was measured")
    one, other = measured[found.reference], measured[found.name]
    job, computer, software = result.job, result.machine, result.versions
    blocks = min(len(one.block_seconds), len(other.block_seconds))
    shortest = min(*one.block_seconds, *other.block_seconds)
    values: dict[str, object] = {
        "version": result.method_version,
        "app": software.metal_trainer,
        "torch": software.torch,
        "system": f"{computer.system} {computer.system_version}".strip(),
        "computer": computer.processor or computer.model or "?",
        "network": job.network,
        "dataset": job.dataset,
        "optimizer": job.optimizer,
        "batch": job.batch_size,
        "one": _paper_name(one, language),
        "other": _paper_name(other, language),
        "blocks": blocks,
        "seconds": f"{shortest:.1f}",
        "value": ratio(found.value),
        "low": ratio(found.low),
        "high": ratio(found.high),
        "same": result.parity.verdict,
    }
    return (_CHINESE if language.startswith("zh") else _ENGLISH)[result.parity.verdict].format(
        **values
    )


def _paper_name(measured: ContenderResult, language: str) -> str:
    if measured.device == "cpu":
        if language.startswith("zh"):
            return f"CPU（{measured.threads} 线程）"
        return f"the CPU ({measured.threads} thread{'s' if measured.threads != 1 else ''})"
    return {"mps": "Metal (MPS)", "cuda": "CUDA"}[measured.device]


_ENGLISH_START = (
    "Training speed was measured with Metal Trainer {app} (method {version}, PyTorch {torch}, "
    "{system}, {computer}) for the network “{network}” on {dataset} with {optimizer} and a batch "
    "size of {batch} in float32, comparing {one} with {other} from identical weights and batches. "
    "After a warm-up that was discarded, {blocks} blocks of at least {seconds} s for each were "
    "timed in balanced order (ABBA), with the device's queue empty at both clock readings; "
)
_ENGLISH_END = {
    "same": "the first 100 training steps of both agreed within float32 rounding. ",
    "differs": "the first 100 training steps of both did not agree, so the speed is that of "
    "different computations. ",
    "unknown": "agreement of the results was not tested. ",
}
_ENGLISH_ANSWER = (
    "Training with {other} was {value} times as fast as with {one} (ratio of median step times; "
    "95 % interval {low} to {high}, paired bootstrap over blocks)."
)
_ENGLISH = {name: _ENGLISH_START + text + _ENGLISH_ANSWER for name, text in _ENGLISH_END.items()}
_CHINESE_START = (
    "训练速度由 Metal Trainer {app}（方法版本 {version}，PyTorch {torch}，{system}，"
    "{computer}）测得："
    "网络“{network}”，数据集 {dataset}，优化器 {optimizer}，批大小 {batch}，float32，"
    "{one} 与 {other} 使用相同的初始权重和相同的批次。"
    "预热不计入结果；之后双方按平衡顺序（ABBA）各测 {blocks} 个时间段，每段不少于 {seconds} 秒，"
    "两次读取时钟时设备队列均为空；"
)
_CHINESE_END = {
    "same": "双方最初 100 个训练步的结果在 float32 舍入误差内一致。",
    "differs": "双方最初 100 个训练步的结果不一致，因此所比较的是不同计算的速度。",
    "unknown": "未检验双方结果是否一致。",
}
_CHINESE_ANSWER = (
    "{other} 的训练速度是 {one} 的 {value} 倍（每步时间中位数之比；95 % 置信区间 {low} 至 {high}，"
    "对时间段作配对自助法）。"
)
_CHINESE = {name: _CHINESE_START + text + _CHINESE_ANSWER for name, text in _CHINESE_END.items()}
