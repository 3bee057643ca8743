import com.linkedin.common.callback.FutureCallback;
import com.linkedin.common.util.None;
import com.linkedin.d2.balancer.D2Client;
import com.linkedin.d2.balancer.D2ClientBuilder;
import com.linkedin.d2.jmx.JmxManager;
import com.linkedin.d2.xds.balancer.XdsLoadBalancerWithFacilitiesFactory;
import com.linkedin.r2.message.rest.RestRequest;
import com.linkedin.r2.message.rest.RestRequestBuilder;
import com.linkedin.r2.message.rest.RestResponse;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/**
 * A D2 client of rest.li 29 that finds its hosts over xDS and makes real R2 requests at a steady rate.
 *
 * <p>Usage: {@code D2Caller SERVER MODE FOLDER OUT RATE CONCURRENCY URL...}, where MODE is {@code map},
 * {@code glob} or {@code glob-irv}, FOLDER is for the files of the client (empty: what an earlier run left
 * would hide a server that does not serve) and OUT gets one line of JSON for each request:
 * {@code {"start":S,"end":S,"ok":true,"by":"BODY"}} or {@code {…,"ok":false,"code":"CLASS","why":"TEXT"}}.
 *
 * <p>First it requests each URL until it is answered: a JVM that has just started on a busy machine may take longer
 * than the client's own time-outs allow. How many of these requests failed is printed as {@code {"before":N}}, then
 * {@code called}; from there on every request counts. When it is asked to end (SIGTERM) it lets the
 * requests under way end, prints what XdsClientJmx says as one line {@code {"jmx":{…}}} and exits with 0.
 */
public final class D2Caller {
  /** After how long a request counts as failed. */
  private static final long REQUEST_MAX_MS = 20_000;
  /** How long starting and stopping the client may take. */
  private static final long LIFECYCLE_MAX_MS = 60_000;
  /** What the beans of the client are called. */
  private static final String JMX_PREFIX = "caller";

  private final D2Client client;
  private final PrintWriter out;
  private final long paceNanos;
  private final AtomicBoolean ending = new AtomicBoolean();

  private D2Caller(D2Client client, PrintWriter out, long paceNanos) {
    this.client = client;
    this.out = out;
    this.paceNanos = paceNanos;
  }

  /** Runs until it is asked to end. */
  public static void main(String[] args) throws Exception {
    Path folder = Paths.get(args[2]);
    double rate = Double.parseDouble(args[4]);
    int concurrency = Integer.parseInt(args[5]);
    D2Client client = build(args[0], args[1], folder);
    FutureCallback<None> started = new FutureCallback<>();
    client.start(started);
    started.get(LIFECYCLE_MAX_MS, TimeUnit.MILLISECONDS);

    int failedBefore = 0;
    for (int number = 6; number < args.length; number++) {
      failedBefore += warmUp(client, URI.create(args[number]));
    }
    PrintWriter out =
        new PrintWriter(Files.newBufferedWriter(Paths.get(args[3]), StandardCharsets.UTF_8));
    long paceNanos = (long) (concurrency / rate * TimeUnit.SECONDS.toNanos(1));
    D2Caller caller = new D2Caller(client, out, paceNanos);
    List<Thread> workers = new ArrayList<>();
    for (int number = 0; number < concurrency; number++) {
      URI uri = URI.create(args[6 + number % (args.length - 6)]);
      workers.add(new Thread(() -> caller.call(uri), "worker-" + number));
    }
    // A program that is asked to end runs its hooks; halting in one gives the exit code.
    Runtime.getRuntime().addShutdownHook(new Thread(() -> caller.finish(workers), "finish"));
    System.out.println("{\"before\":" + failedBefore + "}");
    System.out.println("called");
    System.out.flush();
    workers.forEach(Thread::start);
    new CountDownLatch(1).await();
  }

  private static D2Client build(String server, String mode, Path folder) {
    return new D2ClientBuilder()
        .setLoadBalancerWithFacilitiesFactory(new XdsLoadBalancerWithFacilitiesFactory())
        .setXdsServer(server)
        .setHostName("caller")
        .setFsBasePath(folder.resolve("zk").toString())
        .setIndisFsBasePath(folder.resolve("xds").toString())
        .setSubscribeToUriGlobCollection(!mode.equals("map"))
        .setXdsInitialResourceVersionsEnabled(mode.equals("glob-irv"))
        .setD2JmxManager(new JmxManager())
        .setD2JmxManagerPrefix(JMX_PREFIX)
        .build();
  }

  /** Requests until there is an answer; how many requests failed. */
  private static int warmUp(D2Client client, URI uri) throws Exception {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LIFECYCLE_MAX_MS);
    for (int failed = 0; ; failed++) {
      try {
        RestRequest request = new RestRequestBuilder(uri).setMethod("GET").build();
        client.restRequest(request).get(REQUEST_MAX_MS, TimeUnit.MILLISECONDS);
        return failed;
      } catch (ExecutionException e) {
        if (System.nanoTime() > end) {
          throw e;
        }
      }
    }
  }

  private void call(URI uri) {
    RestRequest request = new RestRequestBuilder(uri).setMethod("GET").build();
    long next = System.nanoTime();
    while (!ending.get()) {
      long wait = next - System.nanoTime();
      if (wait > 0) {
        try {
          TimeUnit.NANOSECONDS.sleep(wait);
        } catch (InterruptedException e) {
          return;
        }
      }
      next = Math.max(next + paceNanos, System.nanoTime());
      double start = now();
      String outcome;
      try {
        RestResponse response =
            client.restRequest(request).get(REQUEST_MAX_MS, TimeUnit.MILLISECONDS);
        String by = response.getEntity().asString(StandardCharsets.UTF_8);
        outcome = "\"ok\":true,\"by\":" + quote(by);
      } catch (ExecutionException e) {
        outcome = failure(e.getCause());
      } catch (Exception e) {
        outcome = failure(e);
      }
      write(start, outcome);
    }
  }

  private void write(double start, String outcome) {
    synchronized (out) {
      out.printf(Locale.ROOT, "{\"start\":%.6f,\"end\":%.6f,%s}%n", start, now(), outcome);
      out.flush();
    }
  }

  private void finish(List<Thread> workers) {
    ending.set(true);
    int code = 0;
    try {
      for (Thread worker : workers) {
        worker.join(2 * REQUEST_MAX_MS);
      }
      System.out.println("{\"jmx\":" + jmx() + "}");
      FutureCallback<None> stopped = new FutureCallback<>();
      client.shutdown(stopped);
      stopped.get(LIFECYCLE_MAX_MS, TimeUnit.MILLISECONDS);
    } catch (Exception e) {
      e.printStackTrace();
      code = 1;
    }
    System.out.flush();
    Runtime.getRuntime().halt(code);
  }

  /** Every number that XdsClientJmx has, as a JSON object. */
  private static String jmx() throws Exception {
    MBeanServer server = ManagementFactory.getPlatformMBeanServer();
    Map<String, String> numbers = new TreeMap<>();
    for (ObjectName name : server.queryNames(new ObjectName("com.linkedin.d2:*"), null)) {
      if (!name.getCanonicalName().contains("XdsClientJmx")) {
        continue;
      }
      for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
        Object value = server.getAttribute(name, attribute.getName());
        if (value instanceof Number && Double.isFinite(((Number) value).doubleValue())) {
          numbers.put(attribute.getName(), value.toString());
        }
      }
    }
    List<String> fields = new ArrayList<>();
    numbers.forEach((key, value) -> fields.add(quote(key) + ":" + value));
    return "{" + String.join(",", fields) + "}";
  }

  private static String failure(Throwable failure) {
    StringBuilder why = new StringBuilder(String.valueOf(failure));
    for (Throwable cause = failure.getCause(); cause != null; cause = cause.getCause()) {
      why.append(": ").append(cause);
    }
    String code = failure.getClass().getSimpleName();
    return "\"ok\":false,\"code\":" + quote(code) + ",\"why\":" + quote(why.toString());
  }

  private static String quote(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        quoted.append('\\').append(c);
      } else if (c < ' ') {
        quoted.append(String.format("\\u%04x", (int) c));
      } else {
        quoted.append(c);
      }
    }
    return quoted.append('"').toString();
  }

  private static double now() {
    return System.currentTimeMillis() / 1000.0;
  }
}
