//! The published schemas of the budget file and of the view's settings agree with the parsers: on every key, and on what is right and wrong.

use std::path::Path;

use serde_json::{Value, json};
use syncaudit::audit::WaitKind;
use syncaudit::config;
use syncaudit::view::keys::BINDINGS;
use syncaudit::view::settings;
use syncaudit::view::theme::{Role, Theme};

fn schema() -> Value {
    published("syncaudit.schema.json")
}

fn published(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The text as the schema sees it: dates are texts.
fn as_json(text: &str) -> Value {
    fn convert(value: toml::Value) -> Value {
        match value {
            toml::Value::Datetime(date) => json!(date.to_string()),
            toml::Value::Array(items) => items.into_iter().map(convert).collect(),
            toml::Value::Table(table) => table
                .into_iter()
                .map(|(key, value)| (key, convert(value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
            other => serde_json::to_value(other).unwrap(),
        }
    }
    convert(toml::Value::Table(text.parse().unwrap()))
}

#[test]
fn what_the_parser_takes_the_schema_takes_and_what_one_refuses_the_other_refuses() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let allow = |keys: &str| format!("[[allow]]\n{keys}\n");
    let right = [
        "".to_owned(),
        "[steps]\npattern = 'a|b *'\nwarmup = 0\nlog-every = 10\nlog-range = 'log'".to_owned(),
        "[steps]\nlog-every = '10+9'".to_owned(),
        "[budget]\nwaits-per-step = 3\n[budget.kinds]\nevent-sync = 1\n[budget.ranges]\n'load*' = 2\n[budget.log-steps]\nwaits-per-step = 4\n[budget.log-steps.kinds]\npolling = 1".to_owned(),
        "[budget]\nexposed-ms-per-step = 1.5".to_owned(),
        "[budget]\nexposed_ms_per_step = 2".to_owned(),
        "[severity]\npolling = 'off'\nmemory-management = 'warn'\nevent-sync = 'error'".to_owned(),
        "[check]\nbaseline = 'b'\nruns = 'any'\n[sources]\nroots = ['.', 'src']".to_owned(),
        allow("kind = 'polling'\nreason = 'r'\nexpires = 2027-01-31\nowner = 'o'\nmax-per-step = 2"),
        allow("fingerprint = '0123456789abcdef'\nreason = 'r'\nexpires = '2027-01-31'\nmax_per_step = 1"),
        allow("function = 'f'\nrange = 'r'\nop = 'aten::item'\nreason = 'r'"),
        config::starter(None),
    ];
    for text in &right {
        assert!(config::parse(Path::new("x"), text).is_ok(), "{text}");
        assert!(validator.is_valid(&as_json(text)), "{text}");
    }
    let wrong = [
        "[step]\nwarmup = 1".to_owned(),
        "[steps]\nwarm-up = 1".to_owned(),
        "[steps]\nwarmup = -1".to_owned(),
        "[steps]\nwarmup = 1.5".to_owned(),
        "[steps]\nwarmup = '2'".to_owned(),
        "[steps]\nlog-every = 0".to_owned(),
        "[steps]\nlog-every = '0+1'".to_owned(),
        "[steps]\nlog-every = 'often'".to_owned(),
        "[steps]\npattern = ''".to_owned(),
        "[steps]\npattern = 'a||b'".to_owned(),
        "[steps]\nlog-range = 3".to_owned(),
        "budget = 3".to_owned(),
        "[budget]\nwaits = 3".to_owned(),
        "[budget]\nexposed-ms-per-step = -1".to_owned(),
        "[budget]\nexposed-ms-per-step = '1 ms'".to_owned(),
        "[budget.log-steps]\nexposed-ms-per-step = 1".to_owned(),
        "[budget.kinds]\nevents-sync = 1".to_owned(),
        "[budget.kinds]\nevent-sync = 'one'".to_owned(),
        "[budget.ranges]\n'' = 1".to_owned(),
        "[budget.log-steps]\nlog-steps = 1".to_owned(),
        "[severity]\npolling = 'fatal'".to_owned(),
        "[severity]\npoling = 'warn'".to_owned(),
        "[check]\nruns = 'most'".to_owned(),
        "[check]\nbaseline = ' '".to_owned(),
        "[sources]\nroots = 'src'".to_owned(),
        "[sources]\nroots = ['']".to_owned(),
        "[allow]\nkind = 'polling'\nreason = 'r'".to_owned(),
        allow("kind = 'polling'"),
        allow("reason = 'r'"),
        allow("kind = 'poling'\nreason = 'r'"),
        allow("kind = 'polling'\nreason = ''"),
        allow("kind = 'polling'\nreason = 'r'\nexpires = 'soon'"),
        allow("kind = 'polling'\nreason = 'r'\nexpires = 2027-01-31T10:00:00Z"),
        allow("kind = 'polling'\nreason = 'r'\nmax-per-step = 0"),
        allow("kind = 'polling'\nreason = 'r'\nowner = 7"),
        allow("fingerprint = '0123'\nreason = 'r'"),
        allow("fingerprint = '0123456789ABCDEF'\nreason = 'r'"),
        allow("path = 'x'\nkind = 'polling'\nreason = 'r'"),
    ];
    for text in &wrong {
        assert!(config::parse(Path::new("x"), text).is_err(), "{text}");
        assert!(!validator.is_valid(&as_json(text)), "{text}");
    }
}

/// Every key that the schema names is one that the parser knows, and the other way round: the parser says what it knows when asked for nonsense.
#[test]
fn both_know_the_same_keys() {
    let schema = schema();
    let known = |text: &str| -> Vec<String> {
        let error = config::parse(Path::new("x"), text).unwrap_err().text;
        let list = error.split_once("known are: ").unwrap_or_else(|| panic!("{error}")).1;
        let mut keys: Vec<String> = list.split(", ").map(str::to_owned).collect();
        keys.sort();
        keys
    };
    let named = |section: &Value| -> Vec<String> {
        let keys = section["properties"].as_object().unwrap().keys();
        // The second spelling of a key is not offered to anybody.
        let mut keys: Vec<String> = keys.filter(|key| !key.contains('_')).cloned().collect();
        keys.sort();
        keys
    };
    let sections = &schema["properties"];
    const NONSENSE: &str = "xyzzyxyzzyxyzzy";
    for (text, section) in [
        (format!("{NONSENSE} = 1"), &schema),
        (format!("[steps]\n{NONSENSE} = 1"), &sections["steps"]),
        (format!("[budget]\n{NONSENSE} = 1"), &sections["budget"]),
        (format!("[budget.log-steps]\n{NONSENSE} = 1"), &sections["budget"]["properties"]["log-steps"]),
        (format!("[check]\n{NONSENSE} = 1"), &sections["check"]),
        (format!("[sources]\n{NONSENSE} = 1"), &sections["sources"]),
        (format!("[[allow]]\n{NONSENSE} = 1"), &sections["allow"]["items"]),
        (format!("[severity]\n{NONSENSE} = 1"), &sections["severity"]),
        (format!("[budget.kinds]\n{NONSENSE} = 1"), &schema["$defs"]["kinds"]),
    ] {
        assert_eq!(known(&text), named(section), "{text}");
    }
    let kinds: Vec<&str> = WaitKind::ALL.iter().map(|kind| kind.id()).collect();
    assert_eq!(sections["allow"]["items"]["properties"]["kind"]["enum"], json!(kinds));
}

#[test]
fn the_schema_of_the_views_settings_knows_every_key_and_colour_and_refuses_what_the_parser_refuses() {
    let schema = published("view.schema.json");
    let keys = |section: &Value| -> Vec<String> {
        section["properties"].as_object().unwrap().keys().cloned().collect()
    };
    let sorted = |names: Vec<&str>| -> Vec<String> {
        let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        names.sort();
        names
    };
    let mut named = keys(&schema["properties"]["keys"]);
    named.sort();
    assert_eq!(named, sorted(BINDINGS.iter().map(|binding| binding.name).collect()));
    let mut named = keys(&schema["properties"]["colours"]);
    named.sort();
    assert_eq!(named, sorted(Role::all().map(Role::id).collect()));
    let colours: Vec<&str> = settings::COLOURS.iter().map(|(name, _)| *name).collect();
    assert_eq!(schema["$defs"]["colour"]["anyOf"][1]["enum"], json!(colours));

    let validator = jsonschema::validator_for(&schema).unwrap();
    for (text, right) in [
        ("", true),
        ("[keys]\nnext-wait = ['w', 'ctrl-n', 'pageup']\nmouse = []", true),
        (
            "[theme]\ncolours = '16'\nascii = true\n[colours]\nstream-sync = '#56b4e9'\ndim = 245\nwaits = 'light-red'",
            true,
        ),
        ("[key]", false),
        ("keys = 3", false),
        ("[keys]\nfly = ['x']", false),
        ("[keys]\nquit = 'x'", false),
        ("[keys]\nquit = ['F1']", false),
        ("[theme]\ncolours = 16", false),
        ("[theme]\ncolour = '16'", false),
        ("[theme]\nascii = 1", false),
        ("[colours]\nstream = 'red'", false),
        ("[colours]\ndim = 'pink'", false),
        ("[colours]\ndim = '#56b4e'", false),
        ("[colours]\ndim = 256", false),
        ("[colours]\ndim = -1", false),
    ] {
        assert_eq!(settings::apply(Path::new("x"), text, Theme::default()).is_ok(), right, "{text}");
        assert_eq!(validator.is_valid(&as_json(text)), right, "{text}");
    }
}
