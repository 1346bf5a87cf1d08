//! What is said to etcd: the messages of its API v3 that are needed here, with their field numbers.
//!
//! They have been stable since etcd 3.0, and few: a crate for all of them takes `protoc` to build, and hides which endpoint failed
//! behind a balancer (ADR 0048).

use prost::{Message, Oneof};

/// Path of a read.
pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
/// Path of a transaction.
pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
/// Path that makes a lease.
pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
/// Path that ends a lease.
pub(crate) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
/// Path that prolongs a lease.
pub(crate) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
/// Path of a watch.
pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// Path by which a name and a password become a token.
pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// `Compare.CompareResult.EQUAL`.
pub(crate) const EQUAL: i32 = 0;
/// `Compare.CompareTarget.CREATE`.
pub(crate) const TARGET_CREATE: i32 = 1;
/// `Compare.CompareTarget.MOD`.
pub(crate) const TARGET_MOD: i32 = 2;
/// `Compare.CompareTarget.VALUE`.
pub(crate) const TARGET_VALUE: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Request", tags = "2, 3")]
    pub(crate) request: Option<Request>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Request {
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "CompareWith", tags = "5, 6, 7")]
    pub(crate) with: Option<CompareWith>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum CompareWith {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes, tag = "7")]
    Value(Vec<u8>),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

/// A condition: this key has this value.
pub(crate) fn has_value(key: &str, value: &str) -> Compare {
    compare(key, TARGET_VALUE, CompareWith::Value(value.into()))
}

/// A condition: there is no such key.
pub(crate) fn is_absent(key: &str) -> Compare {
    compare(key, TARGET_CREATE, CompareWith::CreateRevision(0))
}

/// A condition: nobody has written this key since.
pub(crate) fn is_unchanged(key: &str, mod_revision: i64) -> Compare {
    compare(key, TARGET_MOD, CompareWith::ModRevision(mod_revision))
}

fn compare(key: &str, target: i32, with: CompareWith) -> Compare {
    Compare {
        result: EQUAL,
        target,
        key: key.into(),
        with: Some(with),
    }
}

/// Writes a key; a lease of 0 is none.
pub(crate) fn put(key: &str, value: &str, lease: i64) -> RequestOp {
    let put = PutRequest {
        key: key.into(),
        value: value.into(),
        lease,
    };
    RequestOp {
        request: Some(Request::Put(put)),
    }
}

/// Removes a key.
pub(crate) fn delete(key: &str) -> RequestOp {
    let delete = DeleteRangeRequest { key: key.into() };
    RequestOp {
        request: Some(Request::DeleteRange(delete)),
    }
}

/// The end of the range of all keys that begin with `prefix`: the prefix with its last byte raised. Our prefixes end in `/`.
pub(crate) fn end_of(prefix: &str) -> Vec<u8> {
    let mut end: Vec<u8> = prefix.into();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_an_end() {
        assert_eq!(end_of("/muster/a/"), b"/muster/a0");
        assert_eq!(end_of(""), [0]);
    }

    /// As etcd's own client encodes them: `Put{key: "k", value: "v", lease: 7}` in a transaction on the value of `e`.
    #[test]
    fn a_transaction_has_etcds_bytes() {
        let txn = TxnRequest {
            compare: vec![has_value("e", "1")],
            success: vec![put("k", "v", 7), delete("d")],
        };
        let compare = [0x0a, 8, 0x10, 3, 0x1a, 1, b'e', 0x3a, 1, b'1'];
        let put = [0x12, 10, 0x12, 8, 0x0a, 1, b'k', 0x12, 1, b'v', 0x18, 7];
        let delete = [0x12, 5, 0x1a, 3, 0x0a, 1, b'd'];
        let expected = [&compare[..], &put, &delete].concat();
        assert_eq!(txn.encode_to_vec(), expected);
    }
}
