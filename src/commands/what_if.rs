//! `syncaudit whatif`: what a step would be without some of its waits.

use crate::cli::{Format, Sink, WhatIfArgs};
use crate::trouble::Trouble;
use crate::{judge, load};
use syncaudit::audit::{Pattern, Site, WaitKind};
use syncaudit::price::{Abstention, Effort, what_if};
use syncaudit::{Audit, assess, exit, report};

pub fn what_if_command(args: &WhatIfArgs) -> Result<u8, Trouble> {
    let settings = judge::Settings::of(&args.audit)?;
    let options = settings.options(&args.audit, judge::recorded_steps(&args.traces).as_ref());
    let reports = args
        .output
        .reports(Sink::Stdout)
        .map_err(|found| Trouble::new("write the answer", found, "see `syncaudit whatif --help`"))?;
    if let Some((format, _)) =
        reports.iter().find(|(format, _)| !matches!(format, Format::Text | Format::Json))
    {
        return Err(Trouble::new(
            format!("answer as {}", format.id()),
            "an answer has text and json",
            "leave --format out, or take --format json",
        ));
    }
    let outputs = judge::Outputs::open(reports)?;
    let trace = load(&args.traces)?;
    let audit = assess(&trace, &options, Effort::Full);
    let asked = args.all || !args.remove.is_empty() || !args.keep.is_empty();
    let sets = if asked { vec![chosen(args, &audit)?] } else { Vec::new() };
    let answers = what_if(&trace, &audit, &sets);
    outputs.write(|format, style| match (format, &answers) {
        (Format::Json, Ok(_)) if !asked => {
            let prices = audit.pricing.as_ref().and_then(|pricing| pricing.known());
            let known = prices.map(|prices| prices.best.iter().chain([&prices.together]).cloned().collect());
            report::what_if_json(&audit, &Ok(known.unwrap_or_default()))
        }
        (Format::Json, answers) => report::what_if_json(&audit, answers),
        (_, Err(abstention)) => format!("{}\n", abstention.text()),
        (_, Ok(answers)) => match answers.first() {
            Some(answer) => report::what_if_text(&audit, answer, style.width),
            None => report::what_if_overview(&audit, style.width),
        },
    })?;
    // That nothing waits is an answer.
    Ok(match answers {
        Ok(_) | Err(Abstention::NothingToPrice) => exit::PASS,
        Err(_) => exit::INCONCLUSIVE,
    })
}

/// The sites that the question is about: those to remove, else all that can be, without those to keep.
fn chosen(args: &WhatIfArgs, audit: &Audit) -> Result<Vec<usize>, Trouble> {
    let priced = |site: &Site| {
        let prices = audit.pricing.as_ref().and_then(|pricing| pricing.known());
        // Without prices the answer is why there are none, whatever is asked for.
        prices.is_none_or(|prices| prices.of_site(&site.fingerprint).is_some())
    };
    let removable = |site: &Site| {
        let prices = audit.pricing.as_ref().and_then(|pricing| pricing.known());
        prices.and_then(|prices| prices.of_site(&site.fingerprint)).is_some_and(|price| price.removable)
    };
    let named = |words: &[String]| -> Result<Vec<usize>, Trouble> {
        let mut found = Vec::new();
        for word in words {
            let matches = matcher(word)?;
            let before = found.len();
            let sites = audit.sites.iter().enumerate();
            found.extend(sites.filter(|(_, site)| priced(site) && matches(site)).map(|(at, _)| at));
            if found.len() == before {
                return Err(nothing(word, audit));
            }
        }
        Ok(found)
    };
    let mut chosen = if args.remove.is_empty() {
        (0..audit.sites.len()).filter(|&at| removable(&audit.sites[at])).collect()
    } else {
        named(&args.remove)?
    };
    let keep = named(&args.keep)?;
    chosen.retain(|site| !keep.contains(site));
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}

type Matcher = Box<dyn Fn(&Site) -> bool>;

/// What a word stands for: a kind, the beginning of a fingerprint, or ranges by name.
fn matcher(word: &str) -> Result<Matcher, Trouble> {
    if let Some(kind) = WaitKind::from_id(word) {
        return Ok(Box::new(move |site| site.kind == kind));
    }
    let word = word.to_owned();
    if word.len() >= 4 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Box::new(move |site| site.fingerprint.starts_with(&word) || site.range.contains(&word)));
    }
    let pattern: Pattern = word.parse().map_err(|error| {
        Trouble::new(
            "understand the question",
            format!("`{word}`: {error}"),
            "name a site, a kind or a range",
        )
    })?;
    Ok(Box::new(move |site| site.range.iter().any(|name| pattern.matches(name))))
}

fn nothing(word: &str, audit: &Audit) -> Trouble {
    let mut kinds: Vec<&str> = audit.sites.iter().map(|site| site.kind.id()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut ranges: Vec<&str> = audit.sites.iter().flat_map(|site| &site.range).map(String::as_str).collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges.truncate(8);
    Trouble::new(
        "answer the question",
        format!("`{word}` is no site, kind or range of the waits in what is priced"),
        format!(
            "name one of the kinds {}, one of the ranges {}, or an id from `syncaudit whatif TRACE`",
            kinds.join(", "),
            if ranges.is_empty() { "(there are none)".to_owned() } else { ranges.join(", ") }
        ),
    )
}
