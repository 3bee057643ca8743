// A rest.li D2 client that is served by Waypost over xDS.
//
// One target resolves to all Observers: gRPC connects to one of them and, when that one dies, to
// another.
import com.linkedin.common.callback.FutureCallback;
import com.linkedin.common.util.None;
import com.linkedin.d2.balancer.D2Client;
import com.linkedin.d2.balancer.D2ClientBuilder;
import com.linkedin.d2.xds.balancer.XdsLoadBalancerWithFacilitiesFactory;

D2Client client = new D2ClientBuilder()
    .setXdsServer(@TARGET@)
    .setHostName(@NODE_ID@)
@TLS@    .setLoadBalancerWithFacilitiesFactory(new XdsLoadBalancerWithFacilitiesFactory())
    .build();

FutureCallback<None> started = new FutureCallback<>();
client.start(started);
started.get();
// Requests to d2://@SERVICE@/... now go to the instances that Waypost serves.
