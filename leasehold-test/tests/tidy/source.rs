//! Reading sources.

use std::fs;
use std::path::{Path, PathBuf};

/// The text with comments and the insides of strings blanked, and without test modules.
pub(crate) fn clean(text: &str) -> String {
    let mut code = blank(text);
    let marker = "#[cfg(test)]";
    let mut from = 0;
    while let Some(at) = code[from..].find(marker).map(|at| from + at) {
        from = at + marker.len();
        if !code[from..].trim_start().starts_with("mod ") {
            continue;
        }
        let Some(open) = code[from..].find('{') else {
            break;
        };
        let end = block_end(&code, from + open);
        let gone: String = code[at..end].chars().filter(|c| *c == '\n').collect();
        code.replace_range(at..end, &gone);
        from = at;
    }
    code
}

/// The text with comments and the insides of strings blanked. Lines stay lines.
pub(crate) fn blank(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (taken, shown) = token(rest, c, code.chars().next_back());
        let (gone, after) = rest.split_at(taken);
        match shown {
            Shown::Whole => code.push_str(gone),
            Shown::Masked => code.extend(gone.chars().map(|c| if c == '\n' { c } else { '_' })),
            Shown::Nothing => code.extend(gone.chars().filter(|c| *c == '\n')),
        }
        rest = after;
    }
    code
}

/// What of a token is shown.
pub(crate) enum Shown {
    Whole,
    Masked,
    Nothing,
}

/// How long the token is that `rest` begins with, and what of it is shown.
pub(crate) fn token(rest: &str, c: char, before: Option<char>) -> (usize, Shown) {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Shown::Nothing);
    }
    if rest.starts_with("/*") {
        return (comment_end(rest), Shown::Nothing);
    }
    if c == '"' {
        return (string_end(rest), Shown::Masked);
    }
    if c == 'r' && !in_word {
        let hashes = rest[1..].bytes().take_while(|b| *b == b'#').count();
        if rest[1 + hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = 2 + hashes;
            let end = rest[body..]
                .find(&close)
                .map_or(rest.len(), |at| body + at + close.len());
            return (end, Shown::Masked);
        }
    }
    if c == '\'' {
        let mut chars = rest.char_indices().skip(1);
        let second = chars.next().map(|(_, c)| c);
        let third = chars.next();
        if second == Some('\\') {
            let end = rest[3..].find('\'').map_or(rest.len(), |at| at + 4);
            return (end, Shown::Masked);
        }
        if let Some((at, '\'')) = third {
            return (at + 1, Shown::Masked);
        }
    }
    (c.len_utf8(), Shown::Whole)
}

pub(crate) fn comment_end(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if here.starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

pub(crate) fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Just after the brace that closes the one at `open`.
pub(crate) fn block_end(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return open + at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

pub(crate) fn code_lines(code: &str) -> usize {
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

pub(crate) fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

pub(crate) fn is_start_of_word(code: &str, at: usize) -> bool {
    !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

pub(crate) fn line_at(text: &str, at: usize) -> String {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..]
        .find('\n')
        .map_or(text.len(), |newline| at + newline);
    format!(
        "line {}: {}",
        text[..at].matches('\n').count() + 1,
        text[start..end].trim()
    )
}

/// Fails with every violation that `rule` finds in the files of `folder`.
pub(crate) fn each(folder: &str, extension: &str, rule: impl Fn(&str, &str) -> Vec<String>) {
    let files = files(folder, extension);
    assert!(!files.is_empty(), "no {extension} files in {folder}");
    let violations: Vec<_> = files
        .iter()
        .flat_map(|(path, text)| {
            let of_file = rule(path, text).into_iter();
            of_file.map(move |violation| format!("{path}: {violation}"))
        })
        .collect();
    assert!(violations.is_empty(), "\n{}", violations.join("\n"));
}

/// The files of a folder of the repository, by their path in it, with their text.
pub(crate) fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let root = repository().join(folder);
    let (mut folders, mut files) = (vec![root.clone()], vec![]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                let short = path
                    .strip_prefix(&root)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned();
                files.push((short, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}
