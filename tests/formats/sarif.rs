use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use syncaudit::gate::Code;
use syncaudit::report::sarif;
use syncaudit::rules;

use crate::sample::{judged, many};

fn log(report: &str) -> Value {
    serde_json::from_str(report).unwrap()
}

/// The official schema. It is fetched, not kept here: `cargo xtask sarif-schema`.
fn schema() -> Option<Value> {
    let path = std::env::var_os("SYNCAUDIT_SARIF_SCHEMA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/schemas/sarif-schema-2.1.0.json"),
        PathBuf::from,
    );
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("skipped: no SARIF schema at {}; `cargo xtask sarif-schema` fetches it", path.display());
        return None;
    };
    // The pattern of `language` has a bracket too many, which strict validators refuse.
    let text = text.replace("^[a-zA-Z]{2}|^[a-zA-Z]{2}-[a-zA-Z]{2}]?$", "^[a-zA-Z]{2}(-[a-zA-Z]{2})?$");
    Some(serde_json::from_str(&text).unwrap())
}

#[test]
fn reports_are_valid_by_the_official_schema() {
    let Some(schema) = schema() else { return };
    let validator = jsonschema::validator_for(&schema).unwrap();
    for judged in [judged(false), judged(true), many(0), many(30)] {
        let report = log(&sarif(&judged));
        let errors: Vec<String> = validator
            .iter_errors(&report)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
    // The schema does refuse something.
    let mut wrong = log(&sarif(&many(1)));
    wrong["runs"][0]["results"][0]["level"] = "terrible".into();
    assert!(!validator.is_valid(&wrong));
}

#[test]
fn every_rule_is_declared_once_even_when_silent() {
    let report = log(&sarif(&many(0)));
    let declared: Vec<&str> = report["runs"][0]["tool"]["driver"]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| rule["id"].as_str().unwrap())
        .collect();
    assert_eq!(declared.len(), rules::ALL.len() + Code::ALL.len());
    assert_eq!(declared.iter().collect::<BTreeSet<_>>().len(), declared.len());
}

#[test]
fn results_point_at_their_rule_their_line_and_their_stack() {
    let report = log(&sarif(&judged(false)));
    let run = &report["runs"][0];
    let results = run["results"].as_array().unwrap();
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(run["tool"]["driver"]["rules"][index]["id"], result["ruleId"]);
    }
    let anchors = results.iter().find(|result| result["ruleId"] == "mask-indexing").unwrap();
    let place = &anchors["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "src/model%20dir/anchors.py");
    assert_eq!(place["artifactLocation"]["uriBaseId"], "SRCROOT");
    assert_eq!(place["region"]["startLine"], 40);
    assert_eq!((&anchors["level"], &anchors["baselineState"]), (&"error".into(), &"new".into()));
    let steps = anchors["codeFlows"][0]["threadFlows"][0]["locations"].as_array().unwrap();
    let texts: Vec<&str> =
        steps.iter().map(|step| step["location"]["message"]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["main", "anchors", "cudaMemcpyAsync, then cudaStreamSynchronize"]);
}

#[test]
fn fingerprints_are_the_sites_and_accepted_waits_are_suppressed_with_their_reason() {
    let judged = judged(false);
    let report = log(&sarif(&judged));
    let results = report["runs"][0]["results"].as_array().unwrap();
    let fingerprints: BTreeSet<&str> = results
        .iter()
        .filter_map(|result| result["partialFingerprints"]["syncauditSite/v1"].as_str())
        .collect();
    for finding in judged.findings.iter().filter_map(|finding| finding.fingerprint.as_deref()) {
        assert!(fingerprints.contains(finding), "{finding}");
    }
    let allowed = results.iter().find(|result| result["properties"]["code"] == "allowed-wait").unwrap();
    assert!(allowed["suppressions"][0]["justification"].as_str().unwrap().starts_with("constants, see"));
    assert_eq!(allowed["ruleId"], "scalar-upload");
    let new = results.iter().find(|result| result["properties"]["code"] == "new-wait").unwrap();
    assert_eq!(new["suppressions"], Value::Null);
}
