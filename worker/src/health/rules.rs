//! Where the rules come from by which a worker judges.

use muster_core::health::rules::RuleSet;
use muster_core::ids::Revision;
use muster_proto::v1;
use muster_proto::v1::admin_service_client::AdminServiceClient;
use muster_tls::Dialer;
use tonic::transport::Endpoint;

use crate::limits::{HEALTH_RULES_ANSWER_MAX, HEALTH_RULES_PAUSE, MESSAGE_BYTES_MAX};
use crate::replicas::KnownReplicas;

/// Fetches the rules of a revision from any replica that has them.
#[derive(Clone, Debug)]
pub(super) struct RulesSource {
    replicas: KnownReplicas,
    dialer: Dialer,
}

/// What a replica has.
enum Answer {
    /// The rules that were asked for.
    Them(Box<RuleSet>),
    /// Newer ones, of which the leader will tell.
    Newer,
    /// Older ones, or none that can be had or read now.
    NotYet(String),
}

impl RulesSource {
    /// The replicas that are known at the time.
    pub(super) fn new(replicas: KnownReplicas) -> Self {
        let dialer = Dialer::default();
        Self { replicas, dialer }
    }

    /// As given, by connections that this dialer opens.
    pub(super) fn dialing(self, dialer: Dialer) -> Self {
        Self { dialer, ..self }
    }

    /// The rules that a revision set; none if others were set since. Asks until a replica has them.
    pub(super) async fn rules(self, revision: Revision) -> Option<RuleSet> {
        if revision == Revision::default() {
            return RuleSet::shipped().ok();
        }
        let mut is_told = false;
        loop {
            for address in &self.replicas.addresses() {
                let asked = ask(&self.dialer, address, revision);
                let asked = tokio::time::timeout(HEALTH_RULES_ANSWER_MAX, asked);
                let answer = asked.await;
                match answer.unwrap_or_else(|_| Answer::NotYet("no answer in time".to_owned())) {
                    Answer::Them(rules) => return Some(*rules),
                    Answer::Newer => return None,
                    Answer::NotYet(why) if !is_told => {
                        tracing::warn!(%revision, address, why, "new health rules cannot be fetched yet");
                        is_told = true;
                    }
                    Answer::NotYet(_) => {}
                }
            }
            tokio::time::sleep(HEALTH_RULES_PAUSE).await;
        }
    }
}

/// Any replica will do that has applied the revision: what it has is read without a leader.
async fn ask(dialer: &Dialer, address: &str, revision: Revision) -> Answer {
    match read(dialer, address).await {
        Ok(health) if health.rules_revision > revision.get() => Answer::Newer,
        Ok(health) if health.rules_revision < revision.get() => Answer::NotYet(format!(
            "it has those of revision {}",
            health.rules_revision
        )),
        Ok(health) => match RuleSet::parse(&health.rules) {
            Ok(rules) => Answer::Them(Box::new(rules)),
            Err(error) => Answer::NotYet(format!("this build cannot read them: {error}")),
        },
        Err(error) => Answer::NotYet(error),
    }
}

async fn read(dialer: &Dialer, address: &str) -> Result<v1::GetHealthResponse, String> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    let channel = dialer.connect(&endpoint).await;
    let mut client = AdminServiceClient::new(channel.map_err(|error| error.to_string())?)
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    let request = v1::GetHealthRequest {
        consistency: v1::Consistency::Stale.into(),
    };
    let answer = client.get_health(request).await;
    Ok(answer
        .map_err(|status| status.message().to_owned())?
        .into_inner())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn shipped_rules_are_here_and_others_are_asked_for_until_they_are_had() {
        let source = RulesSource::new(KnownReplicas::configured(Vec::new()));
        let shipped = source.clone().rules(Revision(0)).await;
        assert_eq!(shipped, Some(RuleSet::shipped().unwrap()));
        let asked = tokio::time::timeout(Duration::from_secs(60), source.rules(Revision(7)));
        assert!(asked.await.is_err());
    }
}
