"""Trajectories as a Parquet file (zstd) and back, without loss.

Equal trajectories give equal bytes under one version of the library, so that an artifact's SHA-256 can be
compared between runs.
"""

import io
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from whale.rollout.types import ToolCall, Trajectory, Turn

_TURN = pa.struct(
    [
        ("prompt_ids", pa.list_(pa.int32())),
        ("output_ids", pa.list_(pa.int32())),
        ("logprobs", pa.list_(pa.float64())),
        ("finish_reason", pa.string()),
        ("weights", pa.string()),
        ("prefix_len", pa.int32()),
        ("text", pa.string()),
        ("prefix", pa.string()),
        ("messages", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("task_id", pa.string()),
        ("sample", pa.int32()),
        ("seed", pa.int64()),
        ("status", pa.string()),
        ("reason", pa.string()),
        ("reward", pa.float64()),
        ("answer_turn", pa.int32()),
        ("fabricated", pa.bool_()),
        ("metrics", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("calls", pa.string()),
        ("replies", pa.string()),
    ],
    metadata={"whale.trajectories": "1"},
)


def encode_trajectories(trajectories: Sequence[Trajectory]) -> bytes:
    """One row per rollout, in order."""
    rows = [_row(trajectory) for trajectory in trajectories]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
    return sink.getvalue()


def decode_trajectories(content: bytes) -> list[Trajectory]:
    """The inverse of `encode_trajectories`."""
    # On this thread alone: Arrow's pool of threads can abort a process that is about to exit.
    with pq.ParquetFile(io.BytesIO(content), pre_buffer=False) as file:
        table = file.read(use_threads=False)
    return [_trajectory(row) for row in table.to_pylist()]


def _row(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "task_id": trajectory.task_id,
        "sample": trajectory.sample,
        "seed": trajectory.seed,
        "status": trajectory.status,
        "reason": _text(trajectory.reason),
        "reward": trajectory.reward,
        "answer_turn": trajectory.answer_turn,
        "fabricated": trajectory.fabricated,
        "metrics": _json(dict(trajectory.metrics)),
        "turns": [
            {
                "prompt_ids": list(turn.prompt_ids),
                "output_ids": list(turn.output_ids),
                "logprobs": list(turn.logprobs),
                "finish_reason": turn.finish_reason,
                "weights": turn.weights,
                "prefix_len": turn.prefix_len,
                "text": _text(turn.text),
                "prefix": _text(turn.prefix),
                "messages": _json([dict(message) for message in turn.messages]),
            }
            for turn in trajectory.turns
        ],
        "calls": _json(
            [
                [call.after_turn, call.name, dict(call.arguments), call.result, call.error]
                # Only where there are any: a record without them keeps the bytes that it always had.
                + ([dict(call.replies)] if call.replies else [])
                for call in trajectory.calls
            ]
        ),
        "replies": _json([dict(reply) for reply in trajectory.replies]),
    }


def _trajectory(row: dict[str, Any]) -> Trajectory:
    return Trajectory(
        task_id=row["task_id"],
        sample=row["sample"],
        seed=row["seed"],
        turns=tuple(
            Turn(
                prompt_ids=tuple(turn["prompt_ids"]),
                output_ids=tuple(turn["output_ids"]),
                logprobs=tuple(turn["logprobs"]),
                finish_reason=turn["finish_reason"],
                weights=turn["weights"],
                prefix_len=turn["prefix_len"],
                text=turn["text"],
                prefix=turn["prefix"],
                messages=tuple(json.loads(turn["messages"])),
            )
            for turn in row["turns"]
        ),
        calls=tuple(
            ToolCall(after, name, arguments, result, error, *replies)
            for after, name, arguments, result, error, *replies in json.loads(row["calls"])
        ),
        status=row["status"],
        reason=row["reason"],
        answer_turn=row["answer_turn"],
        replies=tuple(json.loads(row["replies"])),
        reward=row["reward"],
        metrics=json.loads(row["metrics"]),
        fabricated=row["fabricated"],
    )


def _json(value: Any) -> str:
    # Escaped to ASCII, so that a lone surrogate from a model's or harness's text survives the round trip.
    return json.dumps(value, separators=(",", ":"))


def _text(value: str) -> str:
    # Arrow takes UTF-8 only; a lone surrogate becomes a visible escape here.
    return value.encode("utf-8", "backslashreplace").decode("utf-8")
