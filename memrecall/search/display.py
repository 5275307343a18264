"""Search results as HTML for notebooks."""

from dataclasses import asdict

from memrecall.search.request import Hit, SearchPage
from memrecall.text.html import (
    DIM,
    LINE,
    NARROW,
    TEXT,
    WIDE,
    Html,
    Say,
    box,
    cell,
    clip,
    colour_of,
    folded,
    labels,
    note,
    score_cell,
    table,
    tag,
    warning,
)
from memrecall.text.language import language_of, language_of_most
from memrecall.text_length import single_line
from memrecall.types import format_time

_MAX_ROW_CHARACTERS = 300
_LABELS = {
    "results": ("results", "条结果"),
    "of": ("of", "/"),
    "searched": ("searched", "条记录已搜索"),
    "nothing": ("nothing was found", "没有找到"),
    "withheld": ("sensitive memories withheld", "条敏感记忆未显示"),
    "unembedded": ("rows found by their words alone so far", "条暂时只能按字词找到"),
    "embedder_failure": ("searched by keywords only", "仅按关键词搜索"),
    "reranker_failure": ("not reranked", "未重新排序"),
    "more": ("there are more", "还有更多"),
    "why": ("why it was found", "为什么找到它"),
    "chance": ("chance of being relevant", "相关的可能性"),
    "replaced": ("replaced on", "已被取代于"),
    "score": ("score", "得分"),
    "when": ("when", "时间"),
    "who": ("who", "谁"),
    "what": ("what", "内容"),
    "lexical": ("words", "字词"),
    "semantic": ("meaning", "语义"),
    "neighbours": ("neighbours", "上下文"),
    "time": ("time", "时间"),
    "speaker": ("speaker", "说话人"),
    "nature": ("nature", "性质"),
    "coverage": ("coverage", "覆盖率"),
    "cosine": ("cosine", "余弦"),
}


def page_html(page: SearchPage) -> str:
    """Return a page of results as HTML: counts, rows and remarks."""
    language = language_of_most(hit.content for hit in page.results)
    say = labels(_LABELS, language)
    headings = [say(name) for name in ("score", "when", "who", "what")]
    rows = [table((_row(hit, say) for hit in page.results), headings)] if page.results else []
    return str(box(note(_summary(page, say)), *rows, *_remarks(page, say)))


def hit_html(hit: Hit) -> str:
    """Return one result as HTML: speaker, time, text and, folded, the parts of its score."""
    say = labels(_LABELS, language_of(hit.content))
    score = tag("span", f"{hit.score:.2f}", style=f"color:{colour_of(hit.score)};font-weight:600")
    head = tag("span", f" · {_time(hit)} · {hit.key} · ", style=DIM)
    summary = [tag("div", clip(hit.summary, say), style=f"{TEXT};font-weight:600")]
    chance = [] if hit.probability is None else [f"{say('chance')} {hit.probability:.2f}"]
    parts = [f"{say(name)} {value:+.2f}" for name, value in asdict(hit.why).items() if value]
    return str(
        box(
            tag("div", tag("strong", _author(hit)), head, score, style=LINE),
            *(summary if hit.summary else []),
            tag("div", clip(hit.content, say), style=TEXT),
            *([note(" · ".join(hit.keywords))] if hit.keywords else []),
            *_superseded(hit, say),
            folded(say("why"), note(" · ".join([*chance, *parts]))),
        )
    )


def _row(hit: Hit, say: Say) -> list[Html]:
    text = hit.summary or hit.content
    return [
        score_cell(hit.score),
        cell(_time(hit), f"{NARROW};{DIM}"),
        cell(tag("strong", _author(hit))),
        tag("td", single_line(text, _MAX_ROW_CHARACTERS), *_superseded(hit, say), style=WIDE),
    ]


def _superseded(hit: Hit, say: Say) -> list[Html]:
    if hit.valid_to is None:
        return []
    return [warning(f"{say('replaced')} {hit.valid_to:%Y-%m-%d}")]


def _summary(page: SearchPage, say: Say) -> str:
    count, total = len(page.results), page.total_found
    if not count and not total:
        parts = [say("nothing")]
    else:
        number = f"{count:,}" if count == total else f"{count:,} {say('of')} {total:,}"
        parts = [f"{number} {say('results')}"]
    if page.searched:
        parts.append(f"{page.searched:,} {say('searched')}")
    return " · ".join(parts)


def _remarks(page: SearchPage, say: Say) -> list[Html]:
    remarks = [page.explanation] if page.explanation else []
    for name in ("embedder_failure", "reranker_failure"):
        failure = getattr(page, name)
        remarks += [f"{say(name)}: {failure}"] if failure else []
    remarks += [f"{page.withheld:,} {say('withheld')}"] if page.withheld else []
    remarks += [f"{page.unembedded:,} {say('unembedded')}"] if page.unembedded else []
    more = [note(say("more"))] if page.next_cursor else []
    return [*map(warning, remarks), *more]


def _author(hit: Hit) -> str:
    return hit.speaker or hit.role or hit.memory_type


def _time(hit: Hit) -> str:
    return format_time(hit.ts)[:16].replace("T", " ")
