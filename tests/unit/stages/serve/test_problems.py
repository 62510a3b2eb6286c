from __future__ import annotations

import json

from trainwright.stages.serve.problems import ApiError


def test_the_form_is_openais():
    answer = ApiError(400, "no such thing", param="n", code="invalid_value").response()
    assert answer.status_code == 400
    assert json.loads(answer.body) == {
        "error": {"message": "no such thing", "type": "invalid_request_error", "param": "n", "code": "invalid_value"}
    }


def test_who_may_come_again_is_told_when():
    assert ApiError(429, "busy").response().headers["retry-after"] == "1"
    assert "retry-after" not in ApiError(400, "wrong").response().headers
