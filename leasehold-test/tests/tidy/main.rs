//! The style of this repository as tests: what a reviewer would otherwise have to look for.
//!
//! Sources are read as text. `source::clean` blanks what is not code, so that a rule cannot trip
//! over a comment or a string. Each rule in `rules` is a function from a text to its violations,
//! and has a test in `proof` that shows it a violation.
#![allow(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

mod proof;
mod rules;
mod source;

use std::collections::{BTreeMap, BTreeSet};

use rules::{
    BESIDE, LAYERS, NO_TWIN, UPWARDS, dependencies, foreign_types, found, functions, guards,
    included_scripts, is_case, links, may_use, module_path, named_tests, public_methods, roots,
    script_header, strange_words, tests_of_suites, too_long_a_file, too_long_functions, too_wide,
    used_modules,
};
use source::{blank, clean, each, files, read, repository};

/// Where the thread of a blocking client is made.
const THREAD: &str = "blocking/driver.rs";
/// A module by whose name `redis::` can be meant without meaning the crate.
const REDIS_IS_A_MODULE: [&str; 1] = ["store/mod.rs"];

#[test]
fn arrows_between_layers_point_down() {
    each("leasehold/src", "rs", |path, text| {
        let module = module_path(path);
        let Some(from) = module.first().filter(|_| path != "lib.rs") else {
            return vec![];
        };
        let used = used_modules(&clean(text), &module);
        let wrong = used.iter().filter(|to| !may_use(from, to));
        wrong.map(|to| format!("{from} uses {to}")).collect()
    });
}

#[test]
fn every_exception_to_the_arrows_is_needed() {
    let mut arrows = BTreeSet::new();
    for (path, text) in files("leasehold/src", "rs") {
        let module = module_path(&path);
        for to in used_modules(&clean(&text), &module) {
            arrows.insert((module.first().cloned().unwrap_or_default(), to));
        }
    }
    for (from, to, _) in UPWARDS {
        assert!(
            arrows.contains(&(from.to_owned(), to.to_owned())),
            "{from} no longer uses {to}: strike the exception"
        );
    }
}

#[test]
fn every_module_has_a_place_among_the_layers() {
    for (path, _) in files("leasehold/src", "rs") {
        let top = module_path(&path).first().cloned();
        let known = |top: &String| {
            LAYERS.contains(&top.as_str()) || BESIDE.contains(&top.as_str()) || path == "lib.rs"
        };
        assert!(top.as_ref().is_none_or(known), "{path} is in no layer");
    }
}

#[test]
fn the_redis_crate_is_used_under_store_redis_only() {
    each("leasehold/src", "rs", |path, text| {
        if path.starts_with("store/redis/") || REDIS_IS_A_MODULE.contains(&path) {
            return vec![];
        }
        roots(&clean(text), "redis")
    });
}

#[test]
fn tasks_are_spawned_under_engine_store_and_client_only() {
    each("leasehold/src", "rs", |path, text| {
        let top = module_path(path).first().cloned().unwrap_or_default();
        if ["engine", "store", "client"].contains(&top.as_str()) || path == THREAD {
            return vec![];
        }
        found(
            &clean(text),
            &["spawn(", "spawn_blocking", "spawn_local", "JoinSet"],
        )
    });
}

#[test]
fn names_get_their_prefix_in_one_place() {
    // A handle that made a name itself would leave the client's prefix out.
    each("leasehold/src", "rs", |path, text| {
        let face = ["lock/", "blocking/"]
            .iter()
            .any(|top| path.starts_with(top));
        if !face {
            return vec![];
        }
        found(&clean(text), &["Name::new"])
    });
}

#[test]
fn clocks_are_read_in_one_file() {
    each("leasehold/src", "rs", |path, text| {
        if path == "store/clock.rs" {
            return vec![];
        }
        found(
            &clean(text),
            &[
                "Instant::now",
                "SystemTime::now",
                "clock_gettime",
                ".elapsed(",
            ],
        )
    });
}

#[test]
fn every_script_is_included_exactly_once() {
    let mut included: BTreeMap<String, usize> = BTreeMap::new();
    for (_, text) in files("leasehold/src", "rs") {
        for name in included_scripts(&text) {
            *included.entry(name).or_default() += 1;
        }
    }
    let scripts = files("leasehold/src/op/lua", "lua");
    assert!(!scripts.is_empty());
    let expected = scripts.into_iter().map(|(path, _)| (path, 1)).collect();
    assert_eq!(included, expected);
}

#[test]
fn every_script_says_what_it_takes_and_replies() {
    each("leasehold/src/op/lua", "lua", |_, text| script_header(text));
}

#[test]
fn every_script_guards_its_first_call_and_probes_for_a_replica() {
    each("leasehold/src/op/lua", "lua", |_, text| guards(text));
}

#[test]
fn files_are_short() {
    each(".", "rs", |path, text| match path.contains("/tests/") {
        true => vec![],
        false => too_long_a_file(&clean(text)),
    });
}

#[test]
fn functions_are_short() {
    each(".", "rs", |path, text| match path.contains("/tests/") {
        true => vec![],
        false => too_long_functions(&clean(text)),
    });
}

#[test]
fn lines_are_narrow() {
    for extension in ["rs", "lua"] {
        each(".", extension, |_, text| too_wide(text));
    }
}

#[test]
fn the_library_does_not_unwrap() {
    each("leasehold/src", "rs", |_, text| {
        found(&clean(text), &[".unwrap()"])
    });
}

#[test]
fn nothing_is_left_to_do_and_no_test_is_skipped() {
    each(".", "rs", |_, text| {
        let code = blank(text);
        found(&code, &["#[ignore", "todo!", "unimplemented!", "dbg!"])
    });
}

#[test]
fn public_signatures_name_no_foreign_type() {
    let foreign = dependencies(&read("leasehold/Cargo.toml"));
    assert!(foreign.contains("redis") && foreign.contains("tokio"));
    each("leasehold/src", "rs", |_, text| {
        foreign_types(&clean(text), &foreign)
    });
}

/// The public methods of a type, in the façade for threads or outside it.
fn methods(of: &str, blocking: bool) -> BTreeSet<String> {
    let files = files("leasehold/src", "rs").into_iter();
    let here = files.filter(|(path, _)| path.starts_with("blocking/") == blocking);
    here.flat_map(|(_, text)| public_methods(&clean(&text), of))
        .collect()
}

#[test]
fn every_public_method_has_a_twin_for_threads() {
    for of in ["Client", "ClientBuilder", "Mutex", "MutexGuard", "Lease"] {
        let (all, twins) = (methods(of, false), methods(of, true));
        assert!(all.len() > 3, "the methods of {of} are found");
        for method in &all {
            let excused = NO_TWIN.iter().any(|(a, b, _)| (*a, *b) == (of, method));
            assert!(
                twins.contains(method) || excused,
                "blocking::{of} has no {method}"
            );
            assert!(
                !twins.contains(method) || !excused,
                "blocking::{of} has {method}: strike the exception"
            );
        }
        for (_, method, _) in NO_TWIN.iter().filter(|(type_, ..)| *type_ == of) {
            assert!(all.contains(*method), "{of} has no {method} any more");
        }
    }
}

/// Names of tests that no source has.
fn missing_tests(named: &[String]) -> Vec<&String> {
    assert!(!named.is_empty());
    let sources: String = files(".", "rs").into_iter().map(|(_, text)| text).collect();
    let code = blank(&sources);
    let missing = named
        .iter()
        .filter(|name| !code.contains(&format!("fn {name}(")));
    missing.collect()
}

#[test]
fn every_test_that_the_guarantees_name_exists() {
    let named = named_tests(&read("leasehold/src/manual/guarantees.md"));
    assert_eq!(missing_tests(&named), Vec::<&String>::new());
}

#[test]
fn the_table_of_bug_cases_is_exact() {
    let named = tests_of_suites(&read("leasehold-test/README.md"));
    assert_eq!(missing_tests(&named), Vec::<&String>::new());
    let mut unnamed = vec![];
    for (path, text) in files("leasehold-test/tests/bug_cases", "rs") {
        let facts = functions(&clean(&text))
            .into_iter()
            .filter(|name| is_case(name));
        unnamed.extend(
            facts
                .filter(|name| !named.contains(name))
                .map(|name| (path.clone(), name)),
        );
    }
    assert_eq!(unnamed, vec![], "the table has no row for them");
}

#[test]
fn every_file_that_a_page_links_to_exists() {
    for (path, text) in files(".", "md") {
        // Pages that rustdoc reads have its own links, which it checks.
        if path.starts_with("leasehold/src/") {
            continue;
        }
        let folder = repository().join(&path).with_file_name("");
        for link in links(&text) {
            assert!(folder.join(&link).exists(), "{path} links to {link}");
        }
    }
}

#[test]
fn the_project_speaks_of_itself_alone() {
    for extension in ["rs", "lua", "md", "toml"] {
        each(".", extension, |_, text| strange_words(text));
    }
    let script = read("check");
    assert_eq!(strange_words(&script), Vec::<String>::new());
}
