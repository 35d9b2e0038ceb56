//! Who this process is in its job: the rank variables that every launcher sets.

use crate::error::{Error, Result};
use clap::ValueEnum;

/// What a process of a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Trains.
    Trainer,
    /// Runs the target and publishes features.
    Rollout,
}

impl Role {
    /// As messages name it.
    pub fn name(self) -> &'static str {
        match self {
            Role::Trainer => "trainer",
            Role::Rollout => "rollout",
        }
    }
}

/// `--role`: how a launcher says which role a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleOption {
    /// The ranks below --trainers
    Trainer,
    /// The ranks from --trainers on
    Rollout,
    /// As the rank says, for launchers that start the same command everywhere
    ByRank,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Ranks 0 to this, without it.
    pub trainers: usize,
    /// The ranks behind them.
    pub rollouts: usize,
}

impl Layout {
    /// All processes.
    pub fn world(self) -> usize {
        self.trainers + self.rollouts
    }

    /// What rank `rank` does.
    pub fn role(self, rank: usize) -> Role {
        if rank < self.trainers { Role::Trainer } else { Role::Rollout }
    }

    /// `rank 2 (trainer)`.
    pub fn who(self, rank: usize) -> String {
        format!("rank {rank} ({})", self.role(rank).name())
    }
}

/// This process' place in the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub rank: usize,
    /// Its number on its host.
    pub local_rank: usize,
    /// Where rank 0 listens.
    pub master: (String, u16),
    /// All of them.
    pub layout: Layout,
}

impl Place {
    /// The place that the environment gives this process.
    pub fn from_environment(layout: Layout, role: RoleOption) -> Result<Self> {
        Self::from_variables(layout, role, |name| std::env::var(name).ok())
    }

    fn from_variables(
        layout: Layout,
        role: RoleOption,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let missing = |name: &str| {
            Error::new(format!(
                "--role needs the launcher's variables RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; {name} is \
                 not set; leave --role out to have all processes started here"
            ))
        };
        let number = |name: &str| -> Result<usize> {
            let text = variable(name).ok_or_else(|| missing(name))?;
            text.trim().parse().map_err(|_| Error::new(format!("{name} is `{text}`, expected a number")))
        };
        let (rank, world) = (number("RANK")?, number("WORLD_SIZE")?);
        let port = number("MASTER_PORT")?;
        let port = u16::try_from(port)
            .map_err(|_| Error::new(format!("MASTER_PORT is {port}, which is no port")))?;
        if world != layout.world() {
            return Err(Error::new(format!(
                "WORLD_SIZE is {world}, but --trainers {} and --rollouts {} are {} processes; ranks of both roles count as one world",
                layout.trainers,
                layout.rollouts,
                layout.world()
            )));
        }
        if rank >= world {
            return Err(Error::new(format!("RANK is {rank}, but WORLD_SIZE is {world}")));
        }
        let fits = match role {
            RoleOption::ByRank => true,
            RoleOption::Trainer => layout.role(rank) == Role::Trainer,
            RoleOption::Rollout => layout.role(rank) == Role::Rollout,
        };
        if !fits {
            return Err(Error::new(format!(
                "--role and RANK {rank} disagree: with --trainers {} ranks 0 to {} train and the others roll out",
                layout.trainers,
                layout.trainers - 1
            )));
        }
        let master = variable("MASTER_ADDR").ok_or_else(|| missing("MASTER_ADDR"))?;
        Ok(Place { rank, local_rank: number("LOCAL_RANK")?, master: (master, port), layout })
    }

    /// What it does.
    pub fn role(&self) -> Role {
        self.layout.role(self.rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { trainers: 3, rollouts: 1 };

    fn place(role: RoleOption, rank: &str, without: &str) -> Result<Place> {
        Place::from_variables(LAYOUT, role, |name| {
            let value = match name {
                "RANK" => rank,
                "LOCAL_RANK" => "1",
                "WORLD_SIZE" => "4",
                "MASTER_ADDR" => "host",
                "MASTER_PORT" => "2900",
                _ => unreachable!("{name}"),
            };
            (name != without).then(|| value.to_owned())
        })
    }

    #[test]
    fn the_rank_decides_the_role() {
        let roles = ["0", "2", "3"].map(|rank| place(RoleOption::ByRank, rank, "").unwrap().role());
        assert_eq!(roles, [Role::Trainer, Role::Trainer, Role::Rollout]);
        let place = place(RoleOption::Trainer, "2", "").unwrap();
        assert_eq!((place.rank, place.local_rank, place.master), (2, 1, ("host".to_owned(), 2900)));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_variable() {
        let refused = |role, rank, without| place(role, rank, without).unwrap_err().to_string();
        for name in ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
            assert!(refused(RoleOption::ByRank, "0", name).contains(&format!("{name} is not set")));
        }
        assert!(refused(RoleOption::Rollout, "2", "").contains("disagree"));
        assert!(refused(RoleOption::Trainer, "3", "").contains("disagree"));
        assert!(refused(RoleOption::ByRank, "4", "").contains("WORLD_SIZE is 4"));
        assert!(refused(RoleOption::ByRank, "x", "").contains("RANK is `x`"));
    }
}
