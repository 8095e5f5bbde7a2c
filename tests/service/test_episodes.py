"""Episodes in: what is stored, what is refused, and that nothing is stored twice."""

import polars as pl
import pytest

from tidegate import LogError, check

from .serving import NDJSON, PARQUET, Server, parquet, rows


def count(server: Server, gate: str) -> int:
    return int(server.http.get(f"/v1/gates/{gate}").json()["data"]["episodes"])


def post(server: Server, gate: str, body: bytes, medium: str) -> tuple[int, dict[str, object]]:
    answer = server.http.post(f"/v1/gates/{gate}/episodes", content=body, headers={"Content-Type": medium})
    return answer.status_code, answer.json()


def test_parquet_and_json_lines_are_the_same_rows(server: Server) -> None:
    server.put("formats")
    assert post(server, "formats", parquet(rows(50)), PARQUET)[0] == 201
    assert server.send("formats", rows(50, 50)).status_code == 201
    assert count(server, "formats") == 100


@pytest.mark.parametrize(
    ("column", "value", "row"),
    [("behavior_prob", 1.5, 2), ("reward", None, 3), ("new_prob", -0.1, 1), ("action", -1, 2)],
)
def test_a_wrong_row_is_refused_in_the_words_of_check(
    server: Server, column: str, value: object, row: int
) -> None:
    server.put("words")
    values = rows(4).to_dicts()
    values[row - 1][column] = value
    frame = pl.DataFrame(values)
    status, body = post(server, "words", frame.write_ndjson().encode(), NDJSON)
    error = body["error"]
    assert isinstance(error, dict)
    with pytest.raises(LogError) as refused:
        check(frame, policy="column:new_prob", lookahead=20)
    assert (status, error["rows"]) == (422, [row])
    assert (error["what"], error["expected"]) == (refused.value.what, refused.value.expected)
    assert count(server, "words") == 0


def test_an_episode_is_stored_once(server: Server) -> None:
    server.put("once")
    assert server.send("once", rows(20)).status_code == 201
    answer = server.send("once", rows(20, 10))
    assert (answer.status_code, count(server, "once")) == (409, 20)
    assert answer.json()["error"]["what"].startswith("10 of the 20 episodes")


def test_a_repeated_request_gets_the_first_answer(server: Server) -> None:
    server.put("repeated")
    first = server.send("repeated", rows(20), key="one")
    again = server.send("repeated", rows(20), key="one")
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotent-Replayed"] == "true"
    assert server.send("repeated", rows(20, 20), key="one").status_code == 409  # another request
    assert count(server, "repeated") == 20


def test_names_of_episodes_are_known_again(server: Server) -> None:
    server.put("named", time="when", time_unit="hour", episode="name")
    frame = rows(20).select(
        pl.exclude("episode"),
        name=pl.format("visit {}", "episode"),
        when=pl.datetime(2026, 1, 1) + pl.duration(hours="episode"),
    )
    assert server.send("named", frame).status_code == 201
    assert server.send("named", frame[19:]).status_code == 409


def test_episodes_of_several_steps_come_whole(server: Server) -> None:
    server.put("steps")
    steps = rows(6).with_columns(episode=pl.Series([0, 0, 0, 1, 1, 1]), step=pl.Series([0, 1, 2] * 2))
    answer = server.send("steps", steps)
    assert answer.json()["data"] == {**answer.json()["data"], "episodes": 2, "steps": 6}
    later = steps[2:3].with_columns(step=3)
    assert server.send("steps", later).status_code == 409  # of an episode that is stored
    gap = steps[[0, 2]].with_columns(episode=2)
    assert server.send("steps", gap).status_code == 422


def test_rows_without_an_episode_are_one_each(server: Server) -> None:
    server.put("rows", episode="")
    frame = rows(30).drop("episode")
    assert server.send("rows", frame).json()["data"]["episodes"] == 30
    assert server.send("rows", frame).json()["data"]["total"] == 60


def test_bodies_that_are_no_rows_are_refused(server: Server) -> None:
    server.put("bodies")
    assert post(server, "bodies", b"", NDJSON)[0] == 422
    assert post(server, "bodies", b"[1]", NDJSON)[0] == 422
    assert post(server, "bodies", b"PAR1 and no more", PARQUET)[0] == 422
    assert post(server, "bodies", b"{}", "text/csv")[0] == 415
    assert post(server, "nowhere", b"{}", NDJSON)[0] == 404


def test_a_column_that_is_missing_is_named(server: Server) -> None:
    server.put("missing")
    answer = server.send("missing", rows(5).drop("new_prob"))
    assert answer.status_code == 422
    assert "there is no column 'new_prob'" in answer.json()["error"]["sentence"]
