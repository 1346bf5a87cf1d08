//! The list of all writes that replicas forward to the leader.

/// Calls a macro with one row for every write: `Kind: Request => Response,`. A kind is a variant of
/// `v1::write::Kind`, and its response one of the same name of `v1::write_result::Kind`; request and response are
/// messages of [`v1`](crate::v1).
#[macro_export]
macro_rules! for_each_write {
    ($callback:ident) => {
        $callback! {
            SubmitJob: SubmitJobRequest => SubmitJobResponse,
            SubmitPipeline: SubmitPipelineRequest => SubmitPipelineResponse,
            CancelJob: CancelJobRequest => CancelJobResponse,
            SuspendJob: SuspendJobRequest => SuspendJobResponse,
            ResumeJob: ResumeJobRequest => ResumeJobResponse,
            Block: BlockRequest => BlockResponse,
            Unblock: UnblockRequest => UnblockResponse,
            SetQueue: SetQueueRequest => SetQueueResponse,
            ConfigureQueues: ConfigureQueuesRequest => ConfigureQueuesResponse,
            SetTopology: SetTopologyRequest => SetTopologyResponse,
            SetHealthRules: SetHealthRulesRequest => SetHealthRulesResponse,
            ResetBreaker: ResetBreakerRequest => ResetBreakerResponse,
            AddUser: AddUserRequest => AddUserResponse,
            RemoveUser: RemoveUserRequest => RemoveUserResponse,
            RotateUserToken: RotateUserTokenRequest => RotateUserTokenResponse,
            AddJoinToken: AddJoinTokenRequest => AddJoinTokenResponse,
            RevokeJoinToken: RevokeJoinTokenRequest => RevokeJoinTokenResponse,
            UseJoinToken: UseJoinTokenRequest => UseJoinTokenResponse,
            TransferLeader: TransferLeaderRequest => TransferLeaderResponse,
            ChangeReplicas: ChangeReplicasRequest => ChangeReplicasResponse,
            InjectFault: InjectFaultRequest => InjectFaultResponse,
        }
    };
}
