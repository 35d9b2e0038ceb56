//! Prices of recorded traces, and the page about them. Skips without the shared folder of traces.

use std::path::{Path, PathBuf};

use syncaudit::price::{Effort, Limit, NextPayer, Prices, SitePrice, verdict};
use syncaudit::{Audit, AuditOptions};

fn trace(name: &str) -> Option<PathBuf> {
    let shared = std::env::var_os("SYNCAUDIT_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("traces").join(name);
    if !path.is_file() {
        eprintln!("skipped: {} is not there", path.display());
    }
    path.is_file().then_some(path)
}

fn assessed(name: &str) -> Option<Audit> {
    let trace = syncaudit::load_path(&[trace(name)?]).expect("a readable trace");
    Some(syncaudit::assess(&trace, &AuditOptions::default(), Effort::Full))
}

fn prices(audit: &Audit) -> &Prices {
    let pricing = audit.pricing.as_ref().expect("assessed");
    pricing.prices.as_ref().unwrap_or_else(|why| panic!("{}", why.text()))
}

/// Milliseconds as the page has them.
fn ms(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

fn row(name: &str, audit: &Audit) -> String {
    let prices = prices(audit);
    let blocked = prices.sites().iter().map(|site| site.blocked_ns).sum();
    format!(
        "| `{name}` | {} | {} | {} | {} ({}) | {} | {} | {:.1} % |",
        prices.unit.id(),
        ms(prices.recorded_ns),
        ms(prices.step_ns),
        ms(prices.bound.ns()),
        prices.bound.limit().id(),
        ms(blocked),
        ms(prices.idle.waits_ns),
        prices.together.gain_ns as f64 * 100.0 / prices.step_ns as f64
    )
}

fn page() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pricing.md")).expect("the page")
}

const ON_THE_PAGE: [(&str, &str); 6] = [
    ("tracelens_h100_timesformer", "json.gz"),
    ("hta_control", "json.gz"),
    ("kineto_resnet50_nw0", "json.gz"),
    ("tracelens_h100_owlv2", "json.gz"),
    ("nsysai_mfu_before", "sqlite.gz"),
    ("nsysai_mfu_after", "sqlite.gz"),
];

#[test]
fn the_page_has_the_numbers_of_the_recorded_traces_and_their_replays_give_the_recorded_times() {
    let page = page();
    let mut missing = String::new();
    for (name, ending) in ON_THE_PAGE {
        let Some(audit) = assessed(&format!("{name}.{ending}")) else { return };
        let prices = prices(&audit);
        assert!(prices.error_permille <= 5, "{name}: {}", prices.error_permille);
        // Idle time is in exactly one row, and no wait is charged with more than it held the host.
        let idle = prices.idle;
        assert_eq!(
            idle.total_ns,
            idle.waits_ns + idle.host_ns + idle.data_ns + idle.device_ns + idle.unknown_ns
        );
        let charged: u64 = prices.sites().iter().map(|site| site.exposed_ns).sum();
        assert!(idle.waits_ns.abs_diff(charged) <= prices.sites().len() as u64, "{name}: {charged} {idle:?}");
        for site in prices.sites() {
            assert!(site.exposed_ns <= site.blocked_ns + 1, "{name}: {site:?}");
        }
        assert!(
            prices.together.step_ns >= prices.bound.ns() - prices.step_ns / 100,
            "{name}: below the bound"
        );
        let row = row(name, &audit);
        if !page.contains(&row) {
            missing += &format!("{row}\n");
        }
    }
    assert!(missing.is_empty(), "docs/pricing.md lacks\n{missing}");
}

fn of_kind<'a>(audit: &'a Audit, kind: &str) -> Vec<&'a SitePrice> {
    let sites = audit.sites.iter().filter(|site| site.kind.id() == kind);
    sites.filter_map(|site| prices(audit).of_site(&site.fingerprint)).collect()
}

#[test]
fn the_read_of_the_timesformer_is_paid_by_the_synchronise_of_the_next_step_until_both_are_gone() {
    let Some(audit) = assessed("tracelens_h100_timesformer.json.gz") else { return };
    let prices = prices(&audit);
    let read = of_kind(&audit, "device-to-host-read")[0];
    assert_eq!((ms(read.blocked_ns), ms(read.exposed_ns)), ("125.96 ms".into(), "125.96 ms".into()));
    assert_eq!(ms(read.alone_ns.unwrap().unsigned_abs()), "4.53 ms");
    let Some(NextPayer::Site(next)) = read.next_payer else { panic!("{:?}", read.next_payer) };
    assert!(prices.of_site(read.next_site.as_ref().unwrap()).is_some() && next < audit.sites.len());
    let next = audit.sites.iter().find(|site| Some(&site.fingerprint) == read.next_site.as_ref()).unwrap();
    assert_eq!(next.kind.id(), "device-sync");
    assert!(verdict(prices).starts_with("the last of 2 pays: 3"), "{}", verdict(prices));
}

#[test]
fn the_resnet_that_loads_its_data_itself_is_bound_by_its_host() {
    let Some(audit) = assessed("kineto_resnet50_nw0.json.gz") else { return };
    let prices = prices(&audit);
    assert_eq!(prices.bound.limit(), Limit::Host);
    assert!(prices.idle.data_ns > prices.idle.total_ns * 7 / 10, "{:?}", prices.idle);
    assert!(verdict(prices).starts_with("host-bound: removing waits will buy about nothing"));
    assert_eq!(prices.run_ahead.permille(), Some(0));
}
