//! Each rule finds a violation.

use crate::rules::{
    dependencies, foreign_types, functions, guards, included_scripts, is_case, links, may_use,
    named_tests, public_methods, roots, script_header, strange_words, tests_of_suites,
    too_long_a_file, too_long_functions, too_wide, used_modules,
};
use crate::source::{clean, code_lines};

#[test]
fn cleaning_leaves_the_code_and_nothing_else() {
    let text = "let a = 'x'; // redis::x\n/* todo!() /* in */ */\n\
                let b = r#\"a \"q\" .unwrap()\"#;\n\
                /// doc\n\nfn f<'a>(s: &'a str) { g(\"fn no() {\") }\n";
    let code = clean(text);
    assert!(!code.contains("redis") && !code.contains("todo") && !code.contains("unwrap"));
    assert!(code.contains("let b = ") && code.contains("fn f<'a>(s: &'a str)"));
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(code_lines(&code), 3, "{code}");
}

#[test]
fn cleaning_drops_test_modules() {
    let code =
        clean("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { x.unwrap() }\n}\nfn c() {}\n");
    assert!(code.contains("fn a()") && code.contains("fn c()"));
    assert!(!code.contains("fn b()"));
}

#[test]
fn an_arrow_upwards_is_found() {
    let module = ["op".to_owned(), "mutex".to_owned()];
    let code = "use crate::engine::Core;\nuse crate::{model::Name, store};\n\
                fn f(x: super::super::lock::M) {}\n\
                use super::state;";
    let used = used_modules(code, &module);
    assert_eq!(
        used,
        ["engine", "lock", "model", "op", "store"]
            .map(str::to_owned)
            .into()
    );
    assert!(!may_use("op", "engine") && may_use("engine", "op") && may_use("op", "op"));
    assert!(may_use("model", "error") && !may_use("error", "model"));
    assert!(may_use("client", "lock") && !may_use("engine", "client"));
    assert!(may_use("testing", "client") && !may_use("client", "testing"));
}

#[test]
fn the_crate_is_told_from_the_module() {
    assert_eq!(roots("use redis::Value;", "redis").len(), 1);
    assert_eq!(roots("fn f() -> redis::Value {}", "redis").len(), 1);
    assert_eq!(roots("use ::redis::Value;", "redis").len(), 1);
    assert!(roots("use crate::store::redis::RedisStore;", "redis").is_empty());
    assert!(roots("mod redis; my_redis::x();", "redis").is_empty());
}

#[test]
fn long_files_functions_and_lines_are_found() {
    assert!(too_long_a_file(&"x;\n".repeat(400)).is_empty());
    assert_eq!(too_long_a_file(&"x;\n".repeat(401)).len(), 1);
    let function = |lines| format!("fn f() {{\n{}}}\nfn g();\n", "x;\n".repeat(lines));
    assert!(too_long_functions(&function(68)).is_empty());
    assert_eq!(too_long_functions(&function(69)), ["f has 71 lines"]);
    assert!(too_wide(&"x".repeat(100)).is_empty());
    assert_eq!(too_wide(&"x".repeat(101)).len(), 1);
}

#[test]
fn bad_scripts_are_found() {
    let good = "-- Do.\n-- KEYS[1]  a\n-- reply    1\n\
         local probe = redis.pcall('hdel', KEYS[1], 'leasehold:probe')\n";
    assert!(script_header(good).is_empty() && guards(good).is_empty());
    assert_eq!(script_header("local x = ARGV[1]\n").len(), 4);
    let bare = "local x = redis.call('hget', KEYS[1], 'x')";
    assert_eq!(guards(bare).len(), 2);
    assert_eq!(
        guards("local x = redis.pcall('hget', KEYS[1], 'x')").len(),
        1
    );
    assert!(guards("local x = redis.pcall('getex', KEYS[1])").is_empty());
    let lasting = "local x = redis.pcall('getex', KEYS[1], 'EX', 9)";
    assert_eq!(guards(lasting).len(), 1);
    assert_eq!(included_scripts("include_str!(\"lua/a.lua\")"), ["a.lua"]);
}

#[test]
fn foreign_types_are_found() {
    let foreign =
        dependencies("[dependencies]\nredis.workspace = true\nserde_json = \"1\"\n[x]\nstd = 1\n");
    assert_eq!(foreign, ["redis", "serde_json"].map(str::to_owned).into());
    let code = "use redis::{Value, aio::Connection};\n\
                pub fn a(x: Value) {}\npub(crate) fn b(x: Value) {}\n\
                pub fn c() -> serde_json::Map {}\nfn d(x: Value) {}\npub fn e() { let x: Value; }";
    assert_eq!(foreign_types(code, &foreign).len(), 2);
}

#[test]
fn public_methods_are_found() {
    let code = "impl M {\n    pub async fn a(&self) {\n pub_fn b }\n    pub(crate) fn c() {}\n    \
                fn d() {}\n    pub const fn e() {}\n}\nimpl Debug for M {\n    pub fn f() {}\n}\n\
                impl M {\n    pub fn g(self) {}\n}\nimpl N {\n    pub fn h() {}\n}\n";
    assert_eq!(
        public_methods(code, "M"),
        ["a", "e", "g"].map(str::to_owned).into()
    );
}

#[test]
fn strange_words_are_found() {
    let one = ["see issue ", "#12"].concat();
    assert_eq!(strange_words(&one).len(), 1);
    assert!(strange_words("a lock over a network").is_empty());
}

#[test]
fn names_of_tests_and_links_are_found() {
    let page = "`not_a_test_yet`\n## Proof\n| x | `a_b_c`, `appendonly` `Mutex::lock_for_ever` |";
    assert_eq!(named_tests(page), ["a_b_c"]);
    assert_eq!(
        tests_of_suites("| X | `a: b_c`, `d`, `e: f` |"),
        ["b_c", "f"]
    );
    assert_eq!(
        functions("fn a_b() {}\nasync fn c(x: fn()) {}"),
        ["a_b", "c"]
    );
    assert!(is_case("wd_02_it_holds") && !is_case("no_case") && !is_case("hold"));
    assert_eq!(links("[a](b/c.md#d) [e](https://x) [f](#g)"), ["b/c.md"]);
}
