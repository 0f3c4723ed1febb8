//! The command that starts a program on one side of the tunnel.

use std::ffi::OsString;

use clap::Args;
use ropewalk_settings::Side;

use super::Target;

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Around the tunnel, as without one
    #[arg(long, required_unless_present = "inside", conflicts_with = "inside")]
    pub(crate) outside: bool,

    /// Through the tunnel, whatever else goes around it
    #[arg(long)]
    pub(crate) inside: bool,

    /// The name of the application in app:NAME [default: that of the program]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) daemon: Target,

    /// This process is in the control group of the application already
    #[arg(long, hide = true)]
    pub(crate) entered: bool,

    /// The program, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) program: Vec<OsString>,
}

impl Run {
    /// On which side it is to be.
    pub(crate) const fn side(&self) -> Side {
        if self.inside { Side::Inside } else { Side::Outside }
    }
}
