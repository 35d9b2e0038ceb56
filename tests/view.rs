//! The terminal view, drawn into a buffer: what is on the screen after which keys.
//!
//! Pictures are compared with `tests/snapshots/`; `SYNCAUDIT_UPDATE_SNAPSHOTS=1` writes them anew. Pictures of recorded traces
//! need those traces (`../shared/traces`, or `SYNCAUDIT_SHARED`) and are skipped, with a message, where they aren't.

mod snapshots;

use std::path::{Path, PathBuf};

use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::Color;
use snapshots::assert_snapshot;
use syncaudit::audit::{AuditOptions, audit};
use syncaudit::model::{
    CallData, CopyDirection, DeviceOp, DeviceOpKind, MemoryKind, PythonFrame, Trace, TraceBuilder,
};
use syncaudit::view::keys::Keymap;
use syncaudit::view::state::{Effect, Live, SaveAs, View};
use syncaudit::view::theme::Palette;
use syncaudit::view::{App, Recording, Theme, save, widgets};

/// A training loop: in each step an upload, kernels, a read of the loss; in step 7 a slow device synchronise besides. Two ranks
/// if asked for.
fn training(emulated: bool, ranks: u32) -> Trace {
    let mut trace = TraceBuilder::default();
    trace.source.emulated = emulated;
    for rank in 0..ranks {
        let mut process = trace.process(100 + u64::from(rank));
        process.data().rank = (ranks > 1).then_some(rank);
        let stream = process.stream(0x70, Some(7), 0);
        let frames = |process: &mut syncaudit::model::ProcessBuilder<'_>, line, function: &str| {
            let trace = process.trace();
            let (file, function) = (trace.intern("train.py"), trace.intern(function));
            trace.python.intern(&[PythonFrame { file, function, line }])
        };
        let (read, upload, sync) = (
            frames(&mut process, 31, "read_loss"),
            frames(&mut process, 12, "load_batch"),
            frames(&mut process, 40, "debug"),
        );
        let mut now = 1_000_000;
        let mut correlation = 1;
        for step in 0..10 {
            process.thread(process_tid(rank)).push(now, "step", Some(step));
            process.thread(process_tid(rank)).push(now + 10_000, "load batch", None);
            let copied = CallData {
                bytes: 1 << 20,
                correlation,
                stream,
                python: upload,
                direction: CopyDirection::HostToDevice,
                from: MemoryKind::Pageable,
                to: MemoryKind::Device,
                ..CallData::default()
            };
            process.thread(process_tid(rank)).call("cudaMemcpyAsync", now + 20_000, now + 320_000, copied);
            process.device_op(DeviceOp {
                start_ns: now + 30_000,
                end_ns: now + 300_000,
                bytes: 1 << 20,
                correlation,
                stream,
                kind: DeviceOpKind::Copy,
                direction: CopyDirection::HostToDevice,
                from: MemoryKind::Pageable,
                to: MemoryKind::Device,
                ..DeviceOp::default()
            });
            process.thread(process_tid(rank)).pop(now + 330_000);
            process.thread(process_tid(rank)).push(now + 340_000, "forward", None);
            for kernel in 0..5 {
                correlation += 1;
                let at = now + 350_000 + kernel * 20_000;
                let launch = CallData { correlation, stream, ..CallData::default() };
                process.thread(process_tid(rank)).call("cudaLaunchKernel", at, at + 5_000, launch);
                let name = process.trace().intern("gemm_kernel");
                process.device_op(DeviceOp {
                    start_ns: now + 400_000 + kernel * 200_000,
                    end_ns: now + 590_000 + kernel * 200_000,
                    name,
                    correlation,
                    stream,
                    kind: DeviceOpKind::Kernel,
                    ..DeviceOp::default()
                });
            }
            process.thread(process_tid(rank)).pop(now + 460_000);
            let end = if step == 7 { now + 1_900_000 } else { now + 1_450_000 };
            if step == 7 {
                let data = CallData { python: sync, ..CallData::default() };
                process.thread(process_tid(rank)).call(
                    "cudaDeviceSynchronize",
                    now + 500_000,
                    now + 1_500_000,
                    data,
                );
            } else {
                let data = CallData { stream, python: read, ..CallData::default() };
                process.thread(process_tid(rank)).call(
                    "cudaStreamSynchronize",
                    now + 500_000,
                    now + 1_400_000,
                    data,
                );
            }
            correlation += 1;
            process.thread(process_tid(rank)).pop(end);
            now = end + 20_000;
        }
    }
    trace.finish()
}

fn process_tid(rank: u32) -> u64 {
    100 + u64::from(rank)
}

fn app_of(trace: Trace, size: (u16, u16)) -> App {
    let audit = audit(&trace, &AuditOptions::default());
    audit.reconcile().expect("sums agree");
    App::new(Recording::new(trace, audit), Keymap::default(), size)
}

fn plain() -> Theme {
    Theme { palette: Palette::None, ..Theme::default() }
}

fn buffer(app: &App, theme: Theme) -> Buffer {
    let area = Rect::new(0, 0, app.screen.0, app.screen.1);
    let mut buffer = Buffer::empty(area);
    widgets::draw(app, theme, area, &mut buffer);
    buffer
}

fn screen(app: &App) -> String {
    save::text(&buffer(app, plain()))
}

/// Presses keys, named and separated by blanks; answers the last effect.
fn press(app: &mut App, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for key in keys.split_whitespace() {
        let code = match key {
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "tab" => KeyCode::Tab,
            "left" => KeyCode::Left,
            "right" => KeyCode::Right,
            "up" => KeyCode::Up,
            "down" => KeyCode::Down,
            "pagedown" => KeyCode::PageDown,
            key => KeyCode::Char(key.chars().next().expect("a key")),
        };
        effect = app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
    effect
}

fn type_text(app: &mut App, text: &str) {
    for c in text.chars() {
        app.key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::NONE));
    }
}

fn recorded(name: &str) -> Option<Trace> {
    let shared = std::env::var_os("SYNCAUDIT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join(format!("traces/{name}.json.gz"));
    if !path.is_file() {
        println!("skipped: no recorded trace {name} (SYNCAUDIT_SHARED names the folder)");
        return None;
    }
    Some(syncaudit::load_path(&[path]).expect("a recorded trace is read"))
}

#[test]
fn it_opens_on_the_worst_ordinary_step_with_the_line_and_the_fix() {
    let app = app_of(training(false, 1), (100, 30));
    let text = screen(&app);
    // Two waits in each step; step 7 holds the host longest.
    for part in ["7: 2 waits (over)", "D device-sync", "held the host 1.0 ms", "train.py:40 in debug"] {
        assert!(text.contains(part), "no '{part}' in\n{text}");
    }
    let site = &app.rec.judged.audit.sites[app.current_site().expect("the cursor is on a wait")];
    let rule = syncaudit::rules::find(site.rule).expect("each site has its rule");
    let begin: Vec<&str> = rule.fix(site).split(' ').take(4).collect();
    assert!(text.contains(&format!("fix  {}", begin.join(" "))), "{text}");
}

#[test]
fn the_previous_step_and_the_site_are_a_key_away() {
    let mut app = app_of(training(false, 1), (100, 30));
    press(&mut app, "[");
    let text = screen(&app);
    assert!(text.contains("6: 2 waits (over)") && text.contains("train.py:31 in read_loss"), "{text}");
    press(&mut app, "enter");
    let text = screen(&app);
    assert!(text.contains("9 occurrences") && text.contains("Python frames"), "{text}");
    // From the site to another occurrence, and all the way back.
    press(&mut app, "g enter");
    assert!(screen(&app).contains("0 warm-up: 2 waits"), "{}", screen(&app));
    press(&mut app, "esc esc");
    assert_eq!(app.view, View::Timeline);
    assert!(screen(&app).contains("6: 2 waits (over)"));
}

#[test]
fn w_goes_through_every_wait_and_says_when_there_is_no_more() {
    let mut app = app_of(training(false, 1), (100, 30));
    press(&mut app, "g");
    let mut seen: std::collections::BTreeSet<usize> = app.selected_wait().into_iter().collect();
    for _ in 0..app.rec.judged.audit.waits.len() {
        press(&mut app, "w");
        seen.insert(app.selected_wait().expect("a wait is selected"));
    }
    assert_eq!(seen.len(), 20);
    press(&mut app, "w");
    assert!(screen(&app).contains("this is the last wait"));
    for _ in 0..30 {
        press(&mut app, "W");
    }
    assert!(screen(&app).contains("this is the first wait"));
}

#[test]
fn at_every_zoom_each_wait_of_the_window_has_a_character() {
    for emulated in [false, true] {
        let mut app = app_of(training(emulated, 1), (80, 24));
        press(&mut app, "0");
        for _ in 0..30 {
            let drawn = buffer(&app, Theme { palette: Palette::None, ascii: true, ..Theme::default() });
            let (label, width) = (app.label_width(), app.plot_width());
            let y =
                (0..24).find(|&y| row_text(&drawn, y, label).ends_with("waits ")).expect("a row of waits");
            for wait in &app.rec.judged.audit.waits {
                let position = app.rec.axis.position(wait.start_ns);
                let Some(column) = app.window.column_of(position, width) else { continue };
                let sign = drawn[(label + column, y)].symbol();
                assert!("WSDRE23456789+=".contains(sign) && sign != " ", "'{sign}' in\n{}", screen(&app));
            }
            press(&mut app, "+");
        }
    }
}

fn row_text(buffer: &Buffer, y: u16, width: u16) -> String {
    (0..width).map(|x| buffer[(x, y)].symbol()).collect()
}

#[test]
fn no_time_of_an_emulated_run_is_shown_anywhere() {
    let mut app = app_of(training(true, 2), (120, 40));
    for keys in ["0", "w", "2", "enter", "3", "4", "5", "1 down", "up up up", "tab", "?"] {
        press(&mut app, keys);
        let text = screen(&app);
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '.').collect();
        for pair in words.windows(2) {
            let is_time = pair[0].parse::<f64>().is_ok() && ["ns", "us", "ms", "s"].contains(&pair[1]);
            assert!(!is_time, "'{} {}' after {keys}:\n{text}", pair[0], pair[1]);
        }
    }
    press(&mut app, "esc 1");
    let text = screen(&app);
    assert!(text.contains("call order, no time") && text.contains("emulated"), "{text}");
}

#[test]
fn run_ahead_is_shown_where_it_is_known_and_why_not_where_it_is_not() {
    let shown = |trace| {
        let app = app_of(trace, (100, 30));
        let text = screen(&app);
        text.lines().find(|line| line.starts_with("run-ahead")).unwrap_or_default().to_owned()
    };
    // The step of the slow synchronise ends after the device's work.
    assert!(shown(training(false, 1)).contains("no work was left for the device"));
    assert!(shown(training(true, 1)).contains("not known: an emulated device has no times"));
    let mut copies_alone = training(false, 1);
    copies_alone.processes[0].device_ops.retain(|op| op.kind != DeviceOpKind::Kernel);
    assert!(shown(copies_alone).contains("not known: no kernels were recorded (run --gpu-timeline does)"));
    let mut one_step = training(false, 1);
    let launches = one_step.processes[0].threads[0].calls.iter().filter(|call| call.start_ns < 2_400_000);
    let linked: Vec<u32> = launches.map(|call| call.correlation).collect();
    one_step.processes[0].device_ops.retain(|op| linked.contains(&op.correlation));
    assert!(shown(one_step).contains("not known: no kernel of it"));
}

#[test]
fn idle_time_of_the_device_stands_behind_the_wait_that_caused_it() {
    let Some(trace) = recorded("tracelens_h100_timesformer") else { return };
    let found = syncaudit::assess(&trace, &AuditOptions::default(), syncaudit::price::Effort::Glance);
    let mut app = App::new(Recording::new(trace, found), Keymap::default(), (160, 40));
    let screens: Vec<String> = ["W", "W", "W", "w", "w", "w", "w"]
        .iter()
        .map(|key| {
            press(&mut app, key);
            screen(&app)
        })
        .collect();
    // The upload, 16 us before its copy begins; and the last wait, before which the device has nothing to do behind the read.
    assert!(screens.iter().any(|screen| screen.contains("the device stood idle for 16.4 us behind it")));
    assert!(
        screens.iter().any(|screen| screen.lines().any(|line| line.contains("waits") && line.contains('░')))
    );
}

#[test]
fn every_view_fits_every_size() {
    let mut app = app_of(training(false, 2), (60, 16));
    for size in [(60, 16), (1, 1), (20, 6), (33, 9), (80, 24), (211, 55), (1000, 200), (60, 16)] {
        app.resize(size.0, size.1);
        for keys in
            ["1", "w", "[", "2", "enter", "tab down", "3", "4", "5", "?", "esc", "s", "esc", "/", "esc"]
        {
            press(&mut app, keys);
            drop(buffer(&app, Theme::default()));
        }
    }
}

#[test]
fn without_colours_none_is_used_and_ascii_is_ascii() {
    let mut app = app_of(training(false, 2), (100, 30));
    for keys in ["1", "2", "enter", "3", "4", "5", "?"] {
        press(&mut app, keys);
        let drawn = buffer(&app, Theme { palette: Palette::None, ascii: true, ..Theme::default() });
        for cell in &drawn.content {
            assert!(cell.symbol().is_ascii(), "'{}' after {keys}", cell.symbol());
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "after {keys}");
        }
    }
}

#[test]
fn search_finds_functions_ranges_and_apis_in_both_directions() {
    let mut app = app_of(training(false, 1), (100, 30));
    press(&mut app, "g /");
    type_text(&mut app, "LAUNCHkernel");
    press(&mut app, "enter");
    assert!(screen(&app).contains("cudaLaunchKernel: 'LAUNCHkernel', 50 in all"), "{}", screen(&app));
    press(&mut app, "/");
    type_text(&mut app, "read_loss");
    press(&mut app, "enter");
    let first = app.cursor;
    assert!(screen(&app).contains("'read_loss', 9 in all"), "{}", screen(&app));
    press(&mut app, "n");
    assert!(app.cursor > first);
    press(&mut app, "N");
    assert_eq!(app.cursor, first);
    press(&mut app, "/");
    type_text(&mut app, "no such thing");
    press(&mut app, "enter");
    assert!(screen(&app).contains("is in no function, file, range or API"));
}

#[test]
fn sites_are_filtered_and_ordered() {
    let mut app = app_of(training(false, 1), (100, 30));
    press(&mut app, "2 f");
    type_text(&mut app, "device-sync");
    press(&mut app, "enter");
    assert!(screen(&app).contains("1 of 3 sites"), "{}", screen(&app));
    press(&mut app, "f");
    for _ in 0..20 {
        app.key(KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE));
    }
    press(&mut app, "enter o o");
    let text = screen(&app);
    assert!(text.contains("3 of 3 sites, by host time"), "{text}");
    let (read, sync) = (text.find("read_loss").expect("there"), text.find("debug").expect("there"));
    assert!(read < sync, "{text}");
}

#[test]
fn a_site_is_copied_by_its_fingerprint() {
    let mut app = app_of(training(false, 1), (100, 30));
    let site = app.current_site().expect("the cursor is on a wait");
    let fingerprint = app.rec.judged.audit.sites[site].fingerprint.clone();
    assert_eq!(press(&mut app, "y"), None);
    assert!(screen(&app).contains("f fingerprint   a entry for the allow-list"), "{}", screen(&app));
    assert_eq!(press(&mut app, "f"), Some(Effect::Copy(fingerprint)));
    assert_eq!(press(&mut app, "y x"), None);
    assert_eq!(press(&mut app, "q"), Some(Effect::Quit));
}

#[test]
fn a_copied_entry_allows_the_wait_once_it_has_a_reason() {
    let mut app = app_of(training(false, 1), (100, 30));
    let site = app.current_site().expect("the cursor is on a wait");
    let Some(Effect::Copy(entry)) = press(&mut app, "y a") else { panic!("something is copied") };
    let refused = syncaudit::config::parse(Path::new("syncaudit.toml"), &entry).expect_err("no reason yet");
    assert!(refused.text.contains("'reason' is empty"), "{refused}");
    let filled = entry.replace("reason = \"\"", "reason = \"a test\"");
    let config = syncaudit::config::parse(Path::new("syncaudit.toml"), &filled).expect("an entry");
    let runs = vec![audit(&app.rec.trace, &config.options)];
    let today = "2026-01-01".parse().expect("a day");
    let judged =
        syncaudit::gate::judge_runs(runs, &config.options, &config.rules, None, today).expect("a run");
    let status = |site: usize| judged.audit.sites[site].status;
    assert_eq!(status(site), syncaudit::audit::SiteStatus::Allowed);
    let others = (0..judged.audit.sites.len()).filter(|&other| other != site);
    assert!(others.into_iter().all(|other| status(other) != syncaudit::audit::SiteStatus::Allowed));
}

#[test]
fn a_perfetto_file_of_what_is_visible_is_offered_in_the_timeline_alone() {
    let mut app = app_of(training(false, 1), (60, 16));
    press(&mut app, "s");
    assert!(screen(&app).contains("p Perfetto   other keys: don't"), "{}", screen(&app));
    assert_eq!(press(&mut app, "p"), Some(Effect::Save(SaveAs::Perfetto)));
    press(&mut app, "2 s");
    assert!(!screen(&app).contains("Perfetto"), "{}", screen(&app));
    assert_eq!(press(&mut app, "p"), None);
}

#[test]
fn bookmarks_lead_back() {
    let mut app = app_of(training(false, 1), (100, 30));
    let here = app.cursor;
    press(&mut app, "b g '");
    assert_eq!(app.cursor, here);
    press(&mut app, "b");
    assert!(app.bookmarks.is_empty());
}

#[test]
fn help_lists_what_works_here_and_is_searched_by_typing() {
    let mut app = app_of(training(false, 1), (100, 50));
    press(&mut app, "2 ?");
    let text = screen(&app);
    assert!(
        text.contains("show only sites with a word") && !text.contains("zoom in at the cursor"),
        "{text}"
    );
    type_text(&mut app, "editor");
    let text = screen(&app);
    assert!(text.contains("$EDITOR") && !text.contains("show only sites"), "{text}");
}

#[test]
fn a_trace_that_grows_keeps_the_place_of_the_user() {
    let mut app = app_of(training(false, 1), (100, 30));
    press(&mut app, "[ enter");
    let fingerprint = app.rec.judged.audit.sites[app.site].fingerprint.clone();
    let (window, wait) = (app.window, app.wait.map(|wait| app.rec.judged.audit.waits[wait].start_ns));
    let grown = training(false, 2);
    let grown_audit = audit(&grown, &AuditOptions::default());
    app.update(Recording::new(grown, grown_audit));
    assert_eq!(app.rec.judged.audit.sites[app.site].fingerprint, fingerprint);
    assert_eq!((app.view, app.window), (View::Site, window));
    assert_eq!(app.wait.map(|wait| app.rec.judged.audit.waits[wait].start_ns), wait);
}

#[test]
fn a_lane_stays_selected_when_a_growing_trace_puts_it_elsewhere() {
    // Threads and streams are in the order of how much they do.
    let recorded = |calls: [u64; 2]| {
        let mut trace = TraceBuilder::default();
        let mut process = trace.process(1);
        let streams = [process.stream(0x70, Some(7), 0), process.stream(0x80, Some(8), 0)];
        for ((tid, count), stream) in [200, 300].into_iter().zip(calls).zip(streams) {
            for at in (0..count).map(|call| 1_000 * (call + 1) + tid) {
                process.thread(tid).call("cuStreamSynchronize", at, at + 100, CallData::default());
                let op = DeviceOp { start_ns: at, end_ns: at + 50, stream, ..DeviceOp::default() };
                process.device_op(DeviceOp { kind: DeviceOpKind::Kernel, ..op });
            }
        }
        let trace = trace.finish();
        let found = audit(&trace, &AuditOptions::default());
        Recording::new(trace, found)
    };
    let name = |app: &App| app.lane().expect("a lane").name.clone();
    for (keys, selected) in [("tab", "thread 300"), ("tab tab tab", "stream 8")] {
        let mut app = App::new(recorded([3, 2]), Keymap::default(), (100, 30));
        press(&mut app, "0");
        while app.row.lane > 0 {
            press(&mut app, "up");
        }
        press(&mut app, keys);
        assert_eq!(name(&app), selected);
        app.update(recorded([3, 9]));
        assert_eq!(name(&app), selected);
        let lanes: Vec<&str> = app.rec.lanes.iter().map(|lane| lane.name.as_str()).collect();
        assert_eq!(lanes, ["thread 300", "thread 200", "stream 8", "stream 7"]);
    }
}

#[test]
fn until_a_key_is_pressed_a_growing_trace_shows_its_worst_step() {
    let grown = || {
        let trace = training(false, 1);
        let found = audit(&trace, &AuditOptions::default());
        Recording::new(trace, found)
    };
    let mut app = app_of(TraceBuilder::default().finish(), (100, 30));
    app.update(grown());
    assert!(screen(&app).contains("7: 2 waits (over)"), "{}", screen(&app));
    // Somebody who looks at the end of the run keeps looking at its end.
    let mut app = app_of(training(false, 1), (100, 30));
    press(&mut app, "G");
    let len = app.window.len;
    app.update(Recording::new(training(false, 2), audit(&training(false, 2), &AuditOptions::default())));
    assert_eq!((app.window.start + app.window.len, app.window.len), (app.rec.axis.len(), len));
    assert_eq!(app.cursor, app.rec.axis.len() - 1);
}

#[test]
fn ctrl_c_is_for_the_program_while_one_runs_here_and_leaves_else() {
    let mut app = app_of(training(false, 1), (100, 30));
    let ctrl_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(app.key(ctrl_c), Some(Effect::Quit));
    app.live = Live::Runs;
    assert_eq!(app.key(ctrl_c), Some(Effect::Interrupt));
    press(&mut app, "?");
    assert_eq!(app.key(ctrl_c), Some(Effect::Interrupt));
    press(&mut app, "esc /");
    assert_eq!(app.key(ctrl_c), None);
    assert_eq!(press(&mut app, "q"), Some(Effect::Quit));
}

#[test]
fn a_trace_with_nothing_in_it_is_shown_as_such() {
    let mut app = app_of(TraceBuilder::default().finish(), (80, 24));
    for keys in
        ["w", "[", "+", "enter", "0", "2", "enter", "3", "enter", "5", "1", "tab", "b", "y", "e", "G", "left"]
    {
        press(&mut app, keys);
        drop(screen(&app));
    }
    assert!(screen(&app).contains("INCONCLUSIVE"));
}

#[test]
fn the_views_look_as_they_did() {
    for (name, emulated, size) in
        [("measured", false, (110, 32)), ("emulated", true, (110, 32)), ("narrow", false, (60, 16))]
    {
        let mut app = app_of(training(emulated, 2), size);
        let mut all = screen(&app);
        for keys in ["0", "1 esc w enter", "2", "3", "4"] {
            press(&mut app, keys);
            all += &format!("=== {keys}\n{}", screen(&app));
        }
        assert_snapshot(&format!("view-{name}"), &all);
    }
}

#[test]
fn recorded_traces_look_as_they_did() {
    for name in ["kineto_resnet50_nw4", "tracelens_h100_timesformer", "hta_cuda_event_sync"] {
        let Some(trace) = recorded(name) else { return };
        let mut app = app_of(trace, (110, 32));
        let mut all = screen(&app);
        for keys in ["[", "2", "3"] {
            press(&mut app, keys);
            all += &format!("=== {keys}\n{}", screen(&app));
        }
        assert_snapshot(&format!("view-{name}"), &all);
    }
}

#[test]
fn the_page_lists_every_key() {
    let map = Keymap::default();
    let table: String = syncaudit::view::keys::BINDINGS
        .iter()
        .map(|row| {
            let keys: Vec<String> = map.keys(row.action).split(' ').map(|key| format!("`{key}`")).collect();
            format!("| {} | {} | {} |\n", row.name, keys.join(" "), row.help)
        })
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tui.md");
    let page = std::fs::read_to_string(&path).expect("the page is there");
    if std::env::var_os("SYNCAUDIT_UPDATE_SNAPSHOTS").is_some() {
        let (head, rest) = page.split_once("|---|---|---|\n").expect("a table of three columns");
        let tail = rest.split_once("\n\n").expect("text after the table").1;
        std::fs::write(&path, format!("{head}|---|---|---|\n{table}\n{tail}"))
            .expect("the page can be written");
        return;
    }
    assert!(
        page.contains(&table),
        "docs/tui.md has other keys; SYNCAUDIT_UPDATE_SNAPSHOTS=1 writes them anew"
    );
}
