"""The keys of EC2's RunInstances, which a node type's ``node_config`` is on AWS. A test compares them with botocore's."""

from raysweep.config.document import KeyPath


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Without the counts and tokens, which Ray sets by itself; SubnetIds is a key of Ray's.
NODE_KEYS = _keys(
    """
    AdditionalInfo BlockDeviceMappings CapacityReservationSpecification CpuOptions CreditSpecification DisableApiStop
    DisableApiTermination EbsOptimized ElasticGpuSpecification ElasticInferenceAccelerators EnablePrimaryIpv6 EnclaveOptions
    HibernationOptions IamInstanceProfile ImageId InstanceInitiatedShutdownBehavior InstanceMarketOptions InstanceType
    Ipv6AddressCount Ipv6Addresses KernelId KeyName LaunchTemplate LicenseSpecifications MaintenanceOptions MetadataOptions
    Monitoring NetworkInterfaces NetworkPerformanceOptions Operator Placement PrivateDnsNameOptions PrivateIpAddress
    RamdiskId SecondaryInterfaces SecurityGroupIds SecurityGroups SubnetId SubnetIds TagSpecifications UserData
    """
)

# The keys below some of those, where a misspelt one changes what is paid for. Items of a list have the keys of the list.
KEYS_BELOW: dict[KeyPath, frozenset[str]] = {
    ("BlockDeviceMappings",): _keys("DeviceName Ebs NoDevice VirtualName"),
    ("BlockDeviceMappings", "Ebs"): _keys(
        """
        AvailabilityZone AvailabilityZoneId DeleteOnTermination EbsCardIndex Encrypted Iops KmsKeyId OutpostArn SnapshotId
        Throughput VolumeInitializationRate VolumeSize VolumeType
        """
    ),
    ("IamInstanceProfile",): _keys("Arn Name"),
    ("InstanceMarketOptions",): _keys("MarketType SpotOptions"),
    ("InstanceMarketOptions", "SpotOptions"): _keys(
        "BlockDurationMinutes InstanceInterruptionBehavior MaxPrice SpotInstanceType ValidUntil"
    ),
    ("MetadataOptions",): _keys(
        "HttpEndpoint HttpProtocolIpv6 HttpPutResponseHopLimit HttpTokens InstanceMetadataTags"
    ),
}
