"""Draws the flow of artefacts, in English and Chinese: python docs/assets/flow.py writes flow.svg and flow.zh.svg."""

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH, HEIGHT = 960, 286
BOX_WIDTH, BOX_HEIGHT = 136, 62
COLUMNS = [14 + n * 160 for n in range(6)]
ROWS = [44, 180]

# name -> (column, row, kind); "given" is what a user brings, "stage" what trainwright does.
BOXES = {
    "recipe": (0, 0, "given"),
    "doctor": (1, 0, "stage"),
    "plan": (2, 0, "stage"),
    "audit": (3, 0, "stage"),
    "report": (5, 0, "stage"),
    "corpus": (0, 1, "given"),
    "data": (1, 1, "stage"),
    "train": (2, 1, "stage"),
    "evaluate": (3, 1, "stage"),
    "export": (4, 1, "stage"),
    "serve": (5, 1, "stage"),
}

ENGLISH = {
    "recipe": ("recipe", "one YAML file"),
    "doctor": ("doctor", "probes this machine"),
    "plan": ("plan", "fits? how long? cost?"),
    "audit": ("audit", "predicted : measured"),
    "report": ("report", "one HTML page"),
    "corpus": ("corpus", "files, JSONL, Parquet"),
    "data": ("data", "clean, dedup, tokens"),
    "train": ("train", "resumes bit for bit"),
    "evaluate": ("evaluate", "bits per byte"),
    "export": ("export", "Hugging Face"),
    "serve": ("serve", "OpenAI protocol"),
    "before": "before a cent is spent",
    "work": "the work",
    "predicted": "prediction",
    "measured": "measurement",
}

CHINESE = {
    "recipe": ("recipe 配方", "一个 YAML 文件"),
    "doctor": ("doctor 体检", "实测本机性能"),
    "plan": ("plan 规划", "装得下否、多久、多少钱"),
    "audit": ("audit 对账", "预测 : 实测"),
    "report": ("report 报告", "一页 HTML"),
    "corpus": ("corpus 语料", "文件、JSONL、Parquet"),
    "data": ("data 数据", "清洗、去重、分词"),
    "train": ("train 训练", "逐比特一致地恢复"),
    "evaluate": ("evaluate 评估", "每字节比特数"),
    "export": ("export 导出", "Hugging Face 格式"),
    "serve": ("serve 服务", "OpenAI 协议"),
    "before": "花钱之前",
    "work": "真正动手",
    "predicted": "预测",
    "measured": "实测",
}

STYLE = """
text{font:14px system-ui,-apple-system,"Segoe UI","Noto Sans","Noto Sans CJK SC","PingFang SC","Microsoft YaHei",
sans-serif;fill:#1b1f24}
.small{font-size:11.5px;fill:#5a6270}.name{font-weight:650}
.stage{fill:#fff;stroke:#0072b2;stroke-width:1.5}.given{fill:#f3f4f1;stroke:#8a8f98;stroke-dasharray:4 3}
.line{fill:none;stroke:#5a6270;stroke-width:1.4;marker-end:url(#head)}.key{stroke:#d55e00;stroke-width:2;marker-end:url(#hot)}
.head{fill:#5a6270}.hot{fill:#d55e00}.said{font-size:11.5px;fill:#b34d00}
@media (prefers-color-scheme:dark){text{fill:#e8eaed}.small{fill:#a0a8b3}.stage{fill:#191c20;stroke:#56a8e0}
.given{fill:#22262b;stroke:#8f97a3}.line{stroke:#a0a8b3}.head{fill:#a0a8b3}.key{stroke:#ff8a4c}.hot{fill:#ff8a4c}.said{fill:#ff8a4c}}
""".replace("\n", "")


def side(name: str, where: str) -> tuple[float, float]:
    """The middle of one side of a box."""
    column, row, _ = BOXES[name]
    x, y = COLUMNS[column], ROWS[row]
    return {
        "left": (x, y + BOX_HEIGHT / 2),
        "right": (x + BOX_WIDTH, y + BOX_HEIGHT / 2),
        "top": (x + BOX_WIDTH / 2, y),
        "bottom": (x + BOX_WIDTH / 2, y + BOX_HEIGHT),
    }[where]


def straight(start: tuple[float, float], end: tuple[float, float], kind: str = "line") -> str:
    """An arrow that leaves room for its head."""
    (x0, y0), (x1, y1) = start, end
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    x1, y1 = x1 - (x1 - x0) / length * 5, y1 - (y1 - y0) / length * 5
    return f'<path class="{kind}" d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"/>'


def draw(words: dict[str, str | tuple[str, str]]) -> str:
    """The whole picture."""
    parts = []
    for column, row, kind, (name, remark) in ((*BOXES[key], words[key]) for key in BOXES):
        x, y = COLUMNS[column], ROWS[row]
        middle = x + BOX_WIDTH / 2
        parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="7"/>')
        parts.append(f'<text class="name" x="{middle}" y="{y + 26}" text-anchor="middle">{escape(name)}</text>')
        parts.append(f'<text class="small" x="{middle}" y="{y + 46}" text-anchor="middle">{escape(remark)}</text>')
    chains = [
        ("recipe", "doctor"),
        ("doctor", "plan"),
        ("audit", "report"),
        ("corpus", "data"),
        ("data", "train"),
        ("train", "evaluate"),
        ("export", "serve"),
    ]
    parts += [straight(side(a, "right"), side(b, "left")) for a, b in chains]
    parts.append(straight(side("recipe", "bottom"), (COLUMNS[1] + 20, ROWS[1])))
    parts.append(straight(side("plan", "bottom"), side("train", "top")))
    parts.append(straight((COLUMNS[3] + BOX_WIDTH - 14, ROWS[1]), (COLUMNS[5] + 14, ROWS[0] + BOX_HEIGHT)))
    # The model passes below its evaluation.
    x0, x1, low = COLUMNS[2] + BOX_WIDTH / 2, COLUMNS[4] + BOX_WIDTH / 2, ROWS[1] + BOX_HEIGHT
    parts.append(f'<path class="line" d="M{x0} {low}v18q0 8 8 8H{x1 - 8}q8 0 8 -8v-12"/>')
    parts.append(straight(side("plan", "right"), side("audit", "left"), "line key"))
    parts.append(straight((COLUMNS[2] + BOX_WIDTH - 18, ROWS[1]), (COLUMNS[3] + 30, ROWS[0] + BOX_HEIGHT), "line key"))
    gap = (COLUMNS[2] + BOX_WIDTH + COLUMNS[3]) / 2
    parts.append(f'<text class="said" x="{gap}" y="{ROWS[0] - 6}" text-anchor="middle">{words["predicted"]}</text>')
    parts.append(f'<text class="said" x="{gap + 26}" y="{ROWS[1] - 16}">{words["measured"]}</text>')
    parts.append(f'<text class="small" x="{COLUMNS[0]}" y="24">{words["before"]}</text>')
    parts.append(f'<text class="small" x="{COLUMNS[0]}" y="{ROWS[1] - 12}">{words["work"]}</text>')
    heads = "".join(
        f'<marker id="{name}" class="{name}" markerWidth="7" markerHeight="7" refX="3" refY="3.5" orient="auto">'
        '<path d="M0 0.5L6.5 3.5L0 6.5Z"/></marker>'
        for name in ("head", "hot")
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
        f"<style>{STYLE}</style><defs>{heads}</defs>{''.join(parts)}</svg>\n"
    )


def main() -> None:
    """Write both pictures beside this file."""
    for name, words in (("flow.svg", ENGLISH), ("flow.zh.svg", CHINESE)):
        (Path(__file__).parent / name).write_text(draw(words), encoding="utf-8")


if __name__ == "__main__":
    main()
