//! A replica: its id and address.

use muster_model::ids::ReplicaId;

/// `ID=HOST:PORT`.
pub(crate) fn replica(text: &str) -> Result<(ReplicaId, String), String> {
    let unusable = || format!("`{text}` is not ID=HOST:PORT");
    let (id, address) = text.split_once('=').ok_or_else(unusable)?;
    let id = id.parse().map_err(|_| unusable())?;
    Ok((id, address.to_owned()))
}

/// `ID=HOST:PORT`, or the id alone.
pub(crate) fn replica_or_id(text: &str) -> Result<(ReplicaId, Option<String>), String> {
    if text.contains('=') {
        return replica(text).map(|(id, address)| (id, Some(address)));
    }
    let id = text.parse();
    id.map(|id| (id, None))
        .map_err(|_| format!("`{text}` is neither ID=HOST:PORT nor an id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_an_id_and_an_address_or_the_id_alone() {
        let address = || "node4:7400".to_owned();
        assert_eq!(replica("4=node4:7400"), Ok((ReplicaId(4), address())));
        assert_eq!(
            replica_or_id("4=node4:7400"),
            Ok((ReplicaId(4), Some(address())))
        );
        assert_eq!(replica_or_id("4"), Ok((ReplicaId(4), None)));
        assert!(replica("4").is_err());
        assert!(replica("node4=node4:7400").is_err());
        assert!(replica_or_id("node4:7400").is_err());
    }
}
