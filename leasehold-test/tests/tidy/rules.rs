//! The rules: each takes a text and returns its violations.

use std::collections::BTreeSet;

use crate::source::{block_end, code_lines, is_start_of_word, line_at, word};

/// The layers of the library, from the top. A layer may use any layer below it.
pub(crate) const LAYERS: [&str; 7] = [
    "blocking", "lock", "client", "engine", "store", "op", "model",
];

/// Arrows that go upwards, and why they may.
pub(crate) const UPWARDS: [(&str, &str, &str); 1] = [(
    "client",
    "lock",
    "a client makes the handles and lists what is held, so it names the faces; it calls none",
)];

/// Modules that are no layer: what they may use is said in [`may_use`].
pub(crate) const BESIDE: [&str; 4] = ["error", "manual", "planted", "testing"];

const MOST_LINES_OF_A_FILE: usize = 400;
const MOST_LINES_OF_A_FUNCTION: usize = 70;
const MOST_COLUMNS: usize = 100;

pub(crate) fn may_use(from: &str, to: &str) -> bool {
    let level = |module| LAYERS.iter().position(|layer| *layer == module);
    let listed = || UPWARDS.iter().any(|(a, b, _)| (*a, *b) == (from, to));
    match (from, to) {
        _ if from == to => true,
        (_, "error" | "planted") => true,
        ("testing", _) => true,
        (_, "testing" | "manual") | ("error" | "manual" | "planted", _) => false,
        _ => level(from) < level(to) || listed(),
    }
}

/// Where a file stands in the crate: `store/redis/node.rs` is `store`, `redis`, `node`.
pub(crate) fn module_path(path: &str) -> Vec<String> {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.split('/')
        .filter(|part| *part != "lib")
        .map(str::to_owned)
        .collect()
}

/// The top modules of the crate that some code names by `crate::` or `super::`.
pub(crate) fn used_modules(code: &str, module: &[String]) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        if is_start_of_word(code, at) {
            used.extend(heads(&code[at + "crate::".len()..]));
        }
    }
    let mut rest = code;
    while let Some(at) = rest.find("super::") {
        let mut up = 0;
        rest = &rest[at..];
        while let Some(next) = rest.strip_prefix("super::") {
            (up, rest) = (up + 1, next);
        }
        match module.len().checked_sub(up) {
            Some(0) | None => used.extend(heads(rest)),
            Some(_) => used.extend(module.first().cloned()),
        }
    }
    used.retain(|name| name.chars().next().is_some_and(char::is_lowercase));
    used
}

/// The first names of a path, or of each path of a group.
pub(crate) fn heads(rest: &str) -> Vec<String> {
    let Some(group) = rest.strip_prefix('{') else {
        return vec![word(rest).to_owned()];
    };
    let (mut depth, mut heads, mut fresh) = (0, vec![], true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => fresh = true,
            _ if fresh && c.is_alphabetic() => {
                heads.push(word(&group[at..]).to_owned());
                fresh = false;
            }
            _ => {}
        }
    }
    heads
}

/// Uses of `name::` where `name` stands at the root of its path.
pub(crate) fn roots(code: &str, name: &str) -> Vec<String> {
    let path = format!("{name}::");
    let at_root = |at: usize| {
        let before = &code[..at];
        let inner = before.strip_suffix("::").is_some_and(|outer| {
            outer.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '>')
        });
        is_start_of_word(code, at) && !inner
    };
    let hits = code.match_indices(&path).filter(|(at, _)| at_root(*at));
    hits.map(|(at, _)| line_at(code, at)).collect()
}

pub(crate) fn found(code: &str, words: &[&str]) -> Vec<String> {
    let hits = words.iter().flat_map(|word| code.match_indices(word));
    hits.map(|(at, _)| line_at(code, at)).collect()
}

pub(crate) fn included_scripts(text: &str) -> Vec<String> {
    let names = text.split("include_str!(\"lua/").skip(1);
    names
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

pub(crate) fn script_header(text: &str) -> Vec<String> {
    let header: Vec<_> = text
        .lines()
        .take_while(|line| line.starts_with("-- "))
        .collect();
    let says = |word: &str| header.iter().any(|line| line[3..].starts_with(word));
    let mut missing = vec![];
    if !header.first().is_some_and(|line| line.ends_with('.')) {
        missing.push("the first line is no sentence");
    }
    if !says("KEYS") {
        missing.push("the header names no KEYS");
    }
    if text.contains("ARGV[") && !says("ARGV") {
        missing.push("the header names no ARGV");
    }
    if !says("reply") {
        missing.push("the header tells no reply");
    }
    missing.into_iter().map(str::to_owned).collect()
}

/// The first call finds a key of another type, so it must not throw; and no script answers for a
/// node that takes no writes.
pub(crate) fn guards(text: &str) -> Vec<String> {
    let code: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    let code = code.join("\n");
    let mut missing = vec![];
    let first = code.find("redis.").map(|at| &code[at..]);
    if !first.is_some_and(|call| call.starts_with("redis.pcall(")) {
        missing.push("the first call is no pcall".to_owned());
    }
    // Writes that change nothing: a field that is never there, and a look that sets no expiry.
    let field = code.split("redis.pcall('hdel', ").nth(1);
    let field = field.and_then(|rest| rest.lines().next());
    let field = field.is_some_and(|line| line.contains("leasehold:probe"));
    let look = code.split("redis.pcall('getex', ").nth(1);
    let look = look.and_then(|rest| rest.split_once(')'));
    let look = look.is_some_and(|(key, _)| !key.contains(','));
    if !field && !look {
        missing.push("there is no probe for a replica".to_owned());
    }
    missing
}

pub(crate) fn too_long_a_file(code: &str) -> Vec<String> {
    let lines = code_lines(code);
    let long = lines > MOST_LINES_OF_A_FILE;
    long.then(|| format!("the file has {lines} lines"))
        .into_iter()
        .collect()
}

pub(crate) fn too_long_functions(code: &str) -> Vec<String> {
    let mut long = vec![];
    for (at, _) in code.match_indices("fn ") {
        let name = word(&code[at + 3..]);
        if name.is_empty() || !is_start_of_word(code, at) {
            continue;
        }
        let Some(body) = code[at..]
            .find(['{', ';'])
            .filter(|b| code[at + b..].starts_with('{'))
        else {
            continue;
        };
        let lines = code_lines(&code[at..block_end(code, at + body)]);
        if lines > MOST_LINES_OF_A_FUNCTION {
            long.push(format!("{name} has {lines} lines"));
        }
    }
    long
}

pub(crate) fn too_wide(text: &str) -> Vec<String> {
    // A row of a table cannot be broken.
    let row = |line: &str| line.contains("//! | ") || line.contains("/// | ");
    let wide = |line: &&str| line.chars().count() > MOST_COLUMNS && !row(line);
    text.lines().filter(wide).map(str::to_owned).collect()
}

/// The names of the crates that a manifest depends on, as code names them.
pub(crate) fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest
        .split("[dependencies]\n")
        .nth(1)
        .unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

/// Public functions whose signature names a type of another crate.
pub(crate) fn foreign_types(code: &str, foreign: &BTreeSet<String>) -> Vec<String> {
    let mut types = BTreeSet::new();
    for statement in code
        .split("use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
    {
        if foreign.contains(word(statement)) {
            let words = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
            types.extend(words.filter(|w| w.starts_with(char::is_uppercase)));
        }
    }
    let mut wrong = vec![];
    for (at, _) in code.match_indices("pub ") {
        let rest = &code[at..];
        let signature = &rest[..rest.find(['{', ';']).unwrap_or(rest.len())];
        if !signature.contains("fn ") {
            continue;
        }
        let words = signature.split(|c: char| !c.is_alphanumeric() && c != '_');
        let imported = words.clone().any(|w| types.contains(w));
        let named = foreign
            .iter()
            .any(|name| !roots(signature, name).is_empty());
        if imported || named {
            wrong.push(signature.trim().to_owned());
        }
    }
    wrong
}

/// Methods without a twin in `blocking`, and why.
pub(crate) const NO_TWIN: [(&str, &str, &str); 2] = [
    (
        "Lease",
        "while_held",
        "nothing stops a thread from outside: it asks is_held",
    ),
    (
        "MutexGuard",
        "while_held",
        "nothing stops a thread from outside: it asks is_held",
    ),
];

/// The public methods of a type, in every `impl` of it.
pub(crate) fn public_methods(code: &str, of: &str) -> BTreeSet<String> {
    let mut methods = BTreeSet::new();
    for (at, head) in code.match_indices(&format!("impl {of} {{")) {
        let body = &code[at..block_end(code, at + head.len() - 1)];
        for line in body.lines().map(str::trim) {
            let Some(rest) = line.strip_prefix("pub ") else {
                continue;
            };
            let rest = rest
                .trim_start_matches("const ")
                .trim_start_matches("async ");
            methods.extend(rest.strip_prefix("fn ").map(|name| word(name).to_owned()));
        }
    }
    methods
}

/// Words that speak of the making of the project instead of the project.
pub(crate) fn strange_words(text: &str) -> Vec<String> {
    // In two parts, so that this file does not speak them.
    let words = [
        concat!("issue ", "#"),
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    found(text, &words)
}

/// The names of tests in a page's section on proof: names in backticks, of three words or more.
pub(crate) fn named_tests(page: &str) -> Vec<String> {
    let section = page.split("## Proof").nth(1).unwrap_or_default();
    let quoted = section.split('`').skip(1).step_by(2);
    let names = quoted.filter(|name| word(name) == *name && name.matches('_').count() > 1);
    names.map(str::to_owned).collect()
}

/// The names of tests in a page that says of each in which suite it is: `suite: name`.
pub(crate) fn tests_of_suites(page: &str) -> Vec<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    let names = quoted.filter_map(|text| text.split_once(": "));
    names.map(|(_, name)| name.to_owned()).collect()
}

/// The names of all functions.
pub(crate) fn functions(code: &str) -> Vec<String> {
    let starts = code
        .match_indices("fn ")
        .filter(|(at, _)| is_start_of_word(code, *at));
    starts
        .map(|(at, _)| word(&code[at + 3..]).to_owned())
        .collect()
}

/// Whether a test is named after a bug case: `wd_02_what_holds`.
pub(crate) fn is_case(name: &str) -> bool {
    let mut parts = name.split('_');
    let group = parts.next().is_some_and(|group| group.len() == 2);
    let number = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    group && parts.next().is_some_and(number)
}

/// The links of a page to files of this repository.
pub(crate) fn links(page: &str) -> Vec<String> {
    let targets = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    files
        .map(|target| target.split('#').next().unwrap_or_default().to_owned())
        .collect()
}
