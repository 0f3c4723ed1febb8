//! Every scenario file of this repository runs in virtual time, and what it asks for comes out.

use std::path::Path;

use ropewalk_netlab::scenario::Scenario;
use ropewalk_netlab::virtual_run::run;

#[test]
fn every_scenario_file_holds_in_virtual_time() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let scenario = Scenario::open(&file).unwrap();
        let report = run(&scenario).unwrap();
        println!("{report:?}");
        for finding in report.findings(&scenario) {
            assert!(finding.ok, "{}: {finding:?}", scenario.name);
        }
    }
}
