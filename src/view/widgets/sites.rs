//! The places that wait, one a row.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;

use super::{list_top, put, put_clipped, short_place, sparkline};
use crate::gate::Code;
use crate::report::words::{duration, number};
use crate::view::state::{App, SiteOrder};
use crate::view::theme::{Theme, letter};

pub fn draw(app: &App, theme: Theme, area: Rect, buf: &mut Buffer) {
    let audit = &app.rec.judged.audit;
    let order = match app.site_order {
        SiteOrder::Worst => "worst first",
        SiteOrder::Waits => "by waits",
        SiteOrder::Blocked => "by host time",
        SiteOrder::Place => "by place",
    };
    let filter =
        if app.filter.is_empty() { String::new() } else { format!(", with '{}' in them", app.filter) };
    let title = format!("{} of {} sites, {order}{filter}", app.sites_shown.len(), audit.sites.len());
    put_clipped(buf, theme, (area.x, area.y), area.width, &title, theme.dim());
    let spark = (area.width / 6).clamp(0, 40);
    let spark = if area.width < 80 { 0 } else { spark };
    let blocked = if audit.times_meaningful && area.width >= 70 { 10 } else { 0 };
    let place_width = area.width.saturating_sub(13 + 7 + 9 + blocked + spark + 3);
    let heads = [
        ("status", 13),
        ("waits", 7),
        ("per step", 9),
        ("host time", blocked),
        ("each step", if spark > 0 { spark + 1 } else { 0 }),
        ("kind and place", place_width),
    ];
    let mut x = area.x;
    for (head, width) in heads {
        put(buf, x, area.y + 1, width.saturating_sub(1), head, theme.dim());
        x += width;
    }
    let list = Rect { y: area.y + 2, height: area.height.saturating_sub(2), ..area };
    if app.sites_shown.is_empty() {
        let text = if audit.sites.is_empty() {
            "no wait in this trace"
        } else {
            "no site has that in it; f changes the filter"
        };
        put(buf, list.x, list.y, list.width, text, theme.dim());
        return;
    }
    let top = list_top(app.site_row, app.sites_shown.len(), usize::from(list.height));
    for (y, (at, &index)) in (list.y..list.y + list.height).zip(app.sites_shown.iter().enumerate().skip(top))
    {
        let site = &audit.sites[index];
        let selected = at == app.site_row;
        let with = |style: ratatui::style::Style| {
            if selected { style.add_modifier(Modifier::REVERSED) } else { style }
        };
        let plain = with(ratatui::style::Style::new());
        put(buf, area.x, y, area.width, &" ".repeat(usize::from(area.width)), plain);
        let mut x = area.x;
        put_clipped(buf, theme, (x, y), 12, status(app, index), with(theme.status(site.status)));
        x += 13;
        put(buf, x, y, 6, &format!("{:>5}", site.waits), plain);
        x += 7;
        let per_step = match audit.step_counts.ordinary {
            0 => String::new(),
            steps => number(site.ordinary_waits as f64 / steps as f64),
        };
        put(buf, x, y, 8, &format!("{per_step:>8}"), plain);
        x += 9;
        if blocked > 0 {
            let text = site.blocked_ns.map(duration).unwrap_or_default();
            put(buf, x, y, blocked - 1, &format!("{text:>9}"), plain);
            x += blocked;
        }
        if spark > 0 {
            put(
                buf,
                x,
                y,
                spark,
                &sparkline(theme, &per_step_of(app, index), usize::from(spark)),
                with(theme.waits()),
            );
            x += spark + 1;
        }
        put(buf, x, y, 2, &letter(site.kind).to_string(), with(theme.wait(site.kind)));
        let room = (area.x + area.width).saturating_sub(x + 2);
        put_clipped(buf, theme, (x + 2, y), room, &short_place(theme, site, room), plain);
    }
}

/// Waits of a site in each step, in order.
pub fn per_step_of(app: &App, site: usize) -> Vec<u64> {
    let steps = &app.rec.judged.audit.steps;
    let mut counts = vec![0u64; steps.len()];
    for &wait in &app.rec.of_site[site] {
        if let Some(step) = app.rec.judged.audit.waits[wait as usize].step {
            counts[step as usize] += 1;
        }
    }
    counts
}

/// What the gate found about a site (baseline and allow-list included), else what it is to the budget.
pub fn status(app: &App, site: usize) -> &'static str {
    let judged = &app.rec.judged;
    match judged.of_site(site).map(|finding| finding.code) {
        None | Some(Code::Inconclusive) => judged.audit.sites[site].status.id(),
        Some(code) => code.id(),
    }
}
