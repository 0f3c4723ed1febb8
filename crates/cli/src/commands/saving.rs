//! How a change of the running client outlives it.

use std::path::Path;

use anyhow::Context as _;

use crate::args::Saving;
use crate::exit::Failure;

/// Has `write` put the change into the config, if that is wanted. `running` is the running client's; the file is the one that this
/// command was told of, not one that the daemon names.
pub(super) fn save(
    saving: &Saving,
    running: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> Result<(), Failure> {
    if !saving.save {
        return Ok(());
    }
    let file = std::path::absolute(&saving.config).context("there is no current folder")?;
    if running != file {
        return Err(Failure::Usage(format!(
            "the change holds now, but is not saved: the running client has its config in {}, not in {}; say which \
             with --config",
            running.display(),
            file.display()
        )));
    }
    write(&file).context("the change holds now, but is not saved").map_err(Failure::Failed)
}

/// Until when the change holds.
pub(super) fn until(saving: &Saving) -> String {
    match saving.save {
        true => format!("This is saved in {}.", saving.config.display()),
        false => {
            "This holds until the client ends or reads its config again; with --save it stays."
                .to_owned()
        }
    }
}
