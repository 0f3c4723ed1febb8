//! A setting that makes no sense beside others.

use std::fmt;

/// Which setting makes no sense, why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The keys that lead to it from the section `[tunnel]`, such as `link` and `lte`. Nothing need stand there: then it
    /// is about what is missing.
    pub path: Vec<String>,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub help: Option<&'static str>,
}

impl SettingError {
    /// What is wrong at this path.
    pub fn new<'a>(path: impl IntoIterator<Item = &'a str>, problem: impl Into<String>) -> Self {
        let path = path.into_iter().map(str::to_owned).collect();
        Self { path, problem: problem.into(), help: None }
    }

    /// The same with what to write instead.
    #[must_use]
    pub fn with_help(self, help: &'static str) -> Self {
        Self { help: Some(help), ..self }
    }
}

impl std::error::Error for SettingError {}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.path.join(" ");
        write!(f, "{place}: {}", self.problem)
    }
}
