#include "plan/report/page.h"

#include <fmt/format.h>

namespace triax::plan {
namespace {

using io::escaped;

// Colours: Okabe and Ito 2008, lightened on dark ground. One column on a phone, two on a desk, light on paper.
constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--muted:#5b6570;--line:#dde2e7;--panel:#f5f7f9;--bad:#b3261e;
--good:#1a7f4b;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b5598e;--c4:#b07d00;--c5:#3a8fc4;--c6:#5a5a5a;--c7:#7a5195}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--muted:#9aa4ae;--line:#30363d;--panel:#1c2126;
--bad:#ff8a80;
--good:#6fd39f;--c0:#56b4e9;--c1:#f2915a;--c2:#4fd1a5;--c3:#e6a6cb;--c4:#f0c04a;--c5:#8cc8ee;--c6:#a8a8a8;--c7:#b79ad1}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1120px;padding:28px 22px 60px;background:var(--bg);color:var(--fg);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
h1{font-size:1.7rem;line-height:1.25;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:1.12rem;margin:38px 0 12px;padding-bottom:5px;border-bottom:1px solid var(--line)}
p{margin:6px 0 12px;max-width:80ch}
.sub{color:var(--muted);margin:0 0 18px}.note{color:var(--muted);font-size:.87rem}
.badge{display:inline-block;padding:1px 9px;border-radius:10px;font-size:.8rem;border:1px solid currentColor;
vertical-align:3px;
margin-left:8px;font-weight:500}
.good{color:var(--good)}.bad{color:var(--bad)}
.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:10px;margin:18px 0}
.tile{background:var(--panel);border-radius:8px;padding:10px 13px}
.tile b{display:block;font-size:1.32rem;font-weight:600;font-variant-numeric:tabular-nums;white-space:nowrap}
.tile span{color:var(--muted);font-size:.82rem;display:block;line-height:1.35}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:22px 26px}
figure{margin:0;min-width:0}figcaption{font-weight:600;font-size:.93rem;margin-bottom:2px}
.key{font-weight:400;color:var(--muted);font-size:.84rem}.key i{display:inline-block;width:16px;height:3px;
vertical-align:4px;
margin:0 5px 0 10px;border-radius:2px}
svg{display:block;width:100%;height:auto}
.tick{font-size:12px;fill:var(--muted)}.head{font-size:13px;font-weight:600;fill:var(--fg)}
.number{font-size:12px;fill:#fff;font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--muted);stroke-width:1}
.line{fill:none;stroke-width:1.9;stroke-linejoin:round}.faint{opacity:.35;stroke-width:1}
.cell{fill:var(--panel);stroke:var(--line)}
.s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}
.s5{stroke:var(--c5)}
.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}
.mark{fill:var(--bg);stroke-width:2}
.f0{fill:#0072b2}.f1{fill:#b34f00}.f2{fill:#00795a}.f3{fill:#a04a7c}.f4{fill:#8a6200}.f5{fill:#2f7cad}.f6{fill:#5a5a5a}
.f7{fill:#6b4685}
.k0{background:var(--c0)}.k1{background:var(--c1)}.k2{background:var(--c2)}.k3{background:var(--c3)}
.k4{background:var(--c4)}
.k5{background:var(--c5)}.k6{background:var(--c6)}.k7{background:var(--c7)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;min-width:50%}
th{text-align:left;font-weight:600;color:var(--muted);font-size:.82rem}
td:nth-child(-n+2){white-space:nowrap}th,td{padding:4px 16px 4px 0;border-bottom:1px solid var(--line);
vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td:last-child,th:last-child{padding-right:0}
.bar{display:inline-block;height:9px;background:var(--c0);border-radius:2px;vertical-align:1px;min-width:1px}
.paper{background:#fff;border-radius:6px;padding:6px;overflow-x:auto}.paper svg{min-width:760px}
code,pre{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{background:var(--panel);padding:11px 13px;border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere;
margin:8px 0}
ul{padding-left:20px;margin:6px 0}li{margin:3px 0}ul.plain{list-style:none;padding:0}ul.plain .key i{margin-left:0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:3px 18px;margin:0;font-size:.9rem}
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}
@media (max-width:560px){body{padding:18px 14px 40px}h1{font-size:1.35rem}.tiles{grid-template-columns:1fr 1fr}
.tile b{font-size:1.12rem}dl{grid-template-columns:1fr}dt{margin-top:6px}}
@media print{:root{--bg:#fff;--fg:#000;--muted:#444;--line:#ccc;--panel:#f3f3f3;--bad:#a00;--good:#060;--c0:#0072b2;
--c1:#d55e00;
--c2:#009e73;--c3:#b5598e;--c4:#b07d00;--c5:#3a8fc4;--c6:#5a5a5a;--c7:#7a5195}
body{max-width:none;padding:0;font-size:10pt}.charts{grid-template-columns:1fr 1fr}figure,.tile,tr{break-inside:avoid}
h2{break-after:avoid}.scroll,.paper{overflow:visible}.paper svg{min-width:0}*{print-color-adjust:exact;
-webkit-print-color-adjust:exact}}
)css";

}  // namespace

std::string html_page(const std::string& title, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n<style>{}</style>\n"
      "</head>\n<body>\n{}</body>\n</html>\n",
      escaped(title), kStyle, body);
}

std::string chart_figure(const io::Chart& chart) {
  const std::string picture = io::chart_svg(chart);
  if (picture.empty()) return {};
  std::string key;
  for (const io::ChartSeries& series : chart.series) {
    if (chart.series.size() < 2 || series.label.empty()) continue;
    key += fmt::format("<i class=\"k{}{}\"></i>{}", series.colour % 8,
                       series.look == io::ChartLook::Faint ? " faint" : "", escaped(series.label));
  }
  return fmt::format("<figure><figcaption>{}{}</figcaption>{}</figure>\n", escaped(chart.title),
                     key.empty() ? "" : fmt::format(" <span class=\"key\">{}</span>", key), picture);
}

std::string html_table(const std::vector<std::vector<std::string>>& rows, size_t numbers_from) {
  std::string text = "<div class=\"scroll\"><table>\n";
  for (size_t r = 0; r < rows.size(); ++r) {
    text += r == 0 ? "<thead><tr>" : "<tr>";
    const char* tag = r == 0 ? "th" : "td";
    for (size_t c = 0; c < rows[r].size(); ++c) {
      text += fmt::format("<{0}{1}>{2}</{0}>", tag, c >= numbers_from ? " class=\"n\"" : "", rows[r][c]);
    }
    text += r == 0 ? "</tr></thead><tbody>\n" : "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string section(const std::string& heading, const std::string& body) {
  if (body.empty()) return {};
  return fmt::format("<section><h2>{}</h2>\n{}</section>\n", escaped(heading), body);
}

std::string tiles(const std::vector<Tile>& list) {
  std::string text = "<div class=\"tiles\">\n";
  for (const Tile& tile : list) {
    text += fmt::format("<div class=\"tile\"><b>{}</b><span>{}</span><span>{}</span></div>\n", escaped(tile.value),
                        escaped(tile.label), escaped(tile.hint));
  }
  return text + "</div>\n";
}

}  // namespace triax::plan
