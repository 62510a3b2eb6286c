from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainwright.core.config.text import read_yaml
from trainwright.core.config.tree import DEFAULT, node_of
from trainwright.render.recipe import yaml_lines

finite = st.floats(allow_nan=False, allow_infinity=False)


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co", "Zl", "Zp"]))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | words | st.sampled_from(["no", "3e-4", "null", "-a", "a: b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=15,
)


@given(st.dictionaries(words, values, min_size=1))
def test_what_is_shown_can_be_read_again(value):
    text = "\n".join(line for line, _ in yaml_lines(value))
    assert read_yaml(text, lambda line, column: DEFAULT, []).plain() == node_of(value, DEFAULT).plain()
