"""How a report looks, by day and by night."""

DAY = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948")
NIGHT = ("#3987e5", "#d95926", "#199e70", "#c98500", "#d55181", "#2f9a3c", "#9085e9", "#e66767")


def _colours(palette: tuple[str, ...]) -> str:
    return "".join(f"--c{at}:{colour};" for at, colour in enumerate(palette))


_CLASSES = "".join(
    f".s{at}{{stroke:var(--c{at});fill:var(--c{at})}}.b{at}{{background:var(--c{at})}}"
    for at in range(len(DAY))
)

STYLE = (
    ":root{color-scheme:light dark;--paper:#fcfcfb;--ink:#1a1a19;--soft:#5f5e5a;--line:#e4e3df;"
    f"{_colours(DAY)}}}"
    "@media (prefers-color-scheme:dark){:root{--paper:#1a1a19;--ink:#f2f1ee;--soft:#a5a49e;"
    f"--line:#383835;{_colours(NIGHT)}}}}}"
    "body{margin:0;background:var(--paper);color:var(--ink);"
    "font:15px/1.5 system-ui,'Noto Sans CJK SC',sans-serif}"
    "main{max-width:1120px;margin:0 auto;padding:24px 20px 60px}"
    "h1{font-size:26px;margin:8px 0 16px}h2{font-size:17px;margin:0}"
    "main>h2{margin:36px 0 4px}p{margin:2px 0 10px;color:var(--soft);font-size:13.5px}"
    ".figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));"
    "gap:36px 32px;margin-top:32px;align-items:start}"
    "figure{margin:0;min-width:0}svg{width:100%;height:auto;display:block}"
    ".legend{list-style:none;padding:0;margin:0 0 8px;display:flex;flex-wrap:wrap;gap:2px 16px;"
    "font-size:13px}"
    ".swatch{display:inline-block;width:10px;height:10px;border-radius:50%;margin-right:7px}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-size:13.5px;min-width:100%}"
    "th,td{text-align:left;padding:5px 14px 5px 0;border-bottom:1px solid var(--line);"
    "white-space:nowrap;font-weight:400}thead th{color:var(--soft)}tbody th{font-weight:600}"
    ".numbers td{font-variant-numeric:tabular-nums}.interval{color:var(--soft);font-size:12.5px;"
    "margin-left:6px}"
    "svg text{stroke:none;font-size:12px}.tick{fill:var(--soft)}.label{fill:var(--ink)}"
    ".grid{stroke:var(--line);stroke-width:1}.diagonal{stroke:var(--soft);stroke-dasharray:4 4}"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.whisker{stroke-width:2}"
    ".dot{stroke:var(--paper);stroke-width:1.5}"
    f"{_CLASSES}"
)
