//! Which agent answers where. Owns the way from the configuration to agents, their tools and their
//! limits. Must not know turns.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::config::{self, Config, Sandbox, SlackPlace};
use crate::core::budget::Limits;
use crate::core::egress::Grant;
use crate::core::execution::Address;
use crate::core::ledger::session::Allowance;
use crate::core::policy::Role;
use crate::core::reach;
use crate::engine::{Agent, Agents};
use crate::slack::place::{SURFACE, Thread};
use crate::tools::Wiring;

/// The agents of each channel and of everywhere else.
struct Town {
    everywhere: Arc<Agent>,
    slack: Arc<Agent>,
    channels: BTreeMap<String, Arc<Agent>>,
}

/// The agents as configured.
pub(super) fn agents(config: &Config) -> Result<Agents> {
    let everywhere = config.default_agent().context("no agent is configured")?;
    let of = |place: &SlackPlace| -> Result<Arc<Agent>> {
        let agent = config.agent_named(&place.agent);
        let agent = agent.with_context(|| format!("there is no agent '{}'", place.agent))?;
        Ok(Arc::new(agent_of(config, agent, place.role)))
    };
    let (slack, channels) = match &config.slack {
        Some(slack) => {
            let channels = slack.channels.iter();
            let channels = channels.map(|(id, place)| Ok((id.clone(), of(place)?)));
            (of(&slack.place)?, channels.collect::<Result<_>>()?)
        }
        // A turn of a place that is configured no more may still be open.
        None => (Arc::new(agent_of(config, everywhere, Role::ReadOnly)), BTreeMap::new()),
    };
    let everywhere = Arc::new(agent_of(config, everywhere, Role::Writable));
    let town = Town { everywhere, slack, channels };
    Ok(Agents::by(move |address| Arc::clone(town.at(address))))
}

impl Town {
    fn at(&self, address: &Address) -> &Arc<Agent> {
        if address.surface != SURFACE {
            return &self.everywhere;
        }
        let thread = Thread::of(address).ok();
        let channel = thread.and_then(|thread| self.channels.get(thread.channel()));
        channel.unwrap_or(&self.slack)
    }
}

/// The names of the models of agents that do not ask the usual one.
pub(super) fn models(config: &Config) -> BTreeMap<String, String> {
    let agents = config.agents.iter();
    agents.filter_map(|agent| Some((agent.name.clone(), agent.model.clone()?))).collect()
}

/// An agent in a place that allows no more than this role.
fn agent_of(config: &Config, agent: &config::Agent, role: Role) -> Agent {
    let limits = agent.limits;
    let role = agent.role.narrower(role);
    let reach = reach::policy(&agent.name, role, &agent.hosts, &grants(config));
    Agent {
        name: agent.name.clone(),
        instructions: agent.instructions.clone(),
        wiring: Wiring {
            families: agent.tools.clone(),
            role,
            grace_ms: config.watch.grace_ms,
            sandboxed: config.watch.sandbox != Sandbox::Off,
            networked: !reach.hosts.is_empty(),
        },
        reach,
        limits: Limits {
            model_calls: limits.model_calls_per_turn,
            tool_calls: limits.tool_calls_per_turn,
            ..Limits::default()
        },
        allowance: Allowance {
            wakes: limits.chain_wakes,
            tokens: limits.chain_tokens,
            spawns: limits.chain_spawns,
        },
    }
}

/// Who may be lent what.
pub(crate) fn grants(config: &Config) -> Vec<Grant> {
    let all = config.credentials.iter().map(|credential| Grant {
        name: credential.name.clone(),
        to: credential.to.clone(),
        agents: credential.agents.clone(),
        roles: credential.roles.clone(),
    });
    all.collect()
}
