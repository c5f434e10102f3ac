#pragma once
// The page's style sheet and the few lines of script that sort tables. System fonts, light and dark, print.

namespace kvarena::reports {

inline constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--muted:#5b6570;--line:#d9dee4;--soft:#f4f6f8;--accent:#0072b2;
--good:#00795a;--bad:#b3451b;--floor:#eef3f8;--paper:var(--bg)}
@media(prefers-color-scheme:dark){:root{--fg:#e6e9ed;--bg:#14171b;--muted:#9aa5b1;--line:#343b44;--soft:#1d2228;
--accent:#56b4e9;--good:#4cc9a0;--bad:#f0885a;--floor:#1b2430}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1320px;padding:1.5rem 1.2rem 4rem;background:var(--bg);color:var(--fg);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.7rem;line-height:1.25;margin:.2rem 0 .6rem}
h2{font-size:1.25rem;margin:2.6rem 0 .4rem;padding-top:.4rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.4rem 0 .3rem}
p{max-width:78ch;margin:.5rem 0}.note,figcaption,.caption{color:var(--muted);font-size:.92rem}
nav ul{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;margin:.8rem 0}
a{color:var(--accent)}
.scroll{overflow:auto;max-height:85vh;margin:.6rem 0;border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;width:100%;font-size:.94rem;font-variant-numeric:tabular-nums}
th,td{padding:.42rem .7rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line)}
tbody tr:last-child>*{border-bottom:0}
thead th{position:sticky;top:0;background:var(--soft);font-weight:600;white-space:nowrap}
thead th.sortable{cursor:pointer}thead th[aria-sort=ascending]::after{content:" ▴"}thead th[aria-sort=descending]::after{content:" ▾"}
th.num,td.num{text-align:right;white-space:nowrap}tbody th{font-weight:500;white-space:nowrap}
tr.baseline{background:var(--soft)}tr.floor{background:var(--floor);font-style:italic}
.unit,.dir{color:var(--muted);font-weight:400}
.ci{display:block;color:var(--muted);font-size:.82em}
.diff{display:block;font-size:.82em}.diff.better{color:var(--good)}.diff.worse{color:var(--bad)}.diff.noise{color:var(--muted)}
.best .v{text-decoration:underline;text-underline-offset:3px}
.state{font-weight:600}.state.failed{color:var(--bad)}.why{display:block;font-size:.82em;color:var(--muted);white-space:normal}
.none{color:var(--muted)}.chip{font-size:.75em;border:1px solid var(--line);border-radius:4px;padding:0 .25em}
details.card summary{cursor:pointer;color:var(--accent);white-space:nowrap}
details dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem;font-size:.85rem;margin:.4rem 0;white-space:normal}
details dl dt{color:var(--muted)}details dl dd{margin:0;overflow-wrap:anywhere}
figure{margin:1.2rem 0}figure svg{max-width:100%;height:auto;display:block}
.narrow{display:none}@media(max-width:560px){.wide{display:none}.narrow{display:block}body{padding:1rem .8rem}}
.footnotes{font-size:.88rem;color:var(--muted)}
@media print{body{max-width:none}.scroll{max-height:none;overflow:visible}.save,nav{display:none}thead th{position:static}}
)css";

inline constexpr const char* kScript = R"js(
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.querySelectorAll("thead tr:last-child th")];
  heads.forEach((head, column) => {
    head.classList.add("sortable");
    head.tabIndex = 0;
    const sort = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => {
        const cell = row.children[column];
        return cell.dataset.v === undefined ? cell.textContent.trim().toLowerCase() : Number(cell.dataset.v);
      };
      const body = table.tBodies[0];
      [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b);
        if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
        return (x < y ? -1 : x > y ? 1 : 0) * (up ? 1 : -1);
      }).forEach(row => body.append(row));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key === "Enter") sort(); });
  });
}
)js";

}  // namespace kvarena::reports
